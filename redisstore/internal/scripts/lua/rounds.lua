-- progress returns how far a writer has come: the sequence of its last round, the nonce, and the
-- whole stored value. That is the sequence and the nonce with a dot between them and, after a
-- colon, the positions of the keys that were refused.
local function progress(writer)
  local kept = redis.call('GET', writer) or '0'
  local seq, nonce = string.match(kept, '^(%d+)%.?(%d*)')
  return tonumber(seq), nonce, kept
end

-- lacks reports whether a change that was reported to a counter is missing from the data, whose
-- last change is last. told has the sequence, the second in which the change was cut, and the key
-- of its writer's sequence. If the change was made more than a day ago, that key may have expired.
local function lacks(told, last)
  if told == '' or told == last then return false end
  local seq, at, writer = string.match(told, '^(%d+) (%d+) (.*)')
  if not seq then return false end
  local stored, _, kept = progress(writer)
  if kept ~= '0' then return stored < tonumber(seq) end
  return redis.call('TIME')[1] - at < 86400
end

-- ladders reads ladders from ARGV[p] on: how many there are, then each as numbers in a text. Few
-- calls need more of them than the first number. It returns a list of them and where they end.
local function ladders(p)
  local list, n = {}, tonumber(ARGV[p])
  for i = 1, n do
    local text = ARGV[p + i]
    list[i] = {most = tonumber(string.match(text, '^%d+')), text = text}
  end
  return list, p + 1 + n
end

-- foldBy folds a key by a ladder of the list, see fold.
local function foldBy(key, ladder, now, flat, exact)
  if not ladder.parsed then
    local numbers = {}
    for digits in string.gmatch(ladder.text, '%d+') do numbers[#numbers + 1] = tonumber(digits) end
    ladder.parsed = ladderOf(numbers, 1, #numbers)
  end
  pcall(fold, key, ladder.parsed, tonumber(now), flat, exact)
end

-- flagsOf reads what is to be done with a key: whether to reset and to load it, whether it is
-- believed to be new, whether to set its time to live even if it exists, whether to fold it, and
-- its ladder, of a list.
local function flagsOf(text, lists)
  local flags = tonumber(text)
  local kind = flags % 32
  return kind % 2 == 1, kind % 4 >= 2, kind % 8 >= 4, kind % 16 >= 8, kind >= 16,
    lists[(flags - kind) / 32]
end

-- recordOf returns the name of a key's restoration record.
local function recordOf(key)
  return (string.gsub(key, '}', '}!r', 1))
end

-- forget deletes a key, and prevents it from being restored in this epoch. It returns an error text
-- if it can't.
local function forget(key, epoch, ttl)
  local done = redis.pcall('DEL', key)
  if type(done) == 'table' then return done.err end
  local record = recordOf(key)
  redis.pcall('DEL', record)
  redis.pcall('HSET', record, 'e', string.format('%.0f', epoch), 'x', '1')
  redis.pcall('PEXPIRE', record, ttl)
end
