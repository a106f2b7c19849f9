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

-- ladders reads ladders from ARGV[p] on: how many there are, and for each how many levels may be
-- stored and how many buckets behind the newest each of them keeps, or -1 if there is none of that
-- number. It returns a list of them and where they end.
local function ladders(p)
  local list = {}
  for i = 1, tonumber(ARGV[p]) do
    local keep, levels = {}, tonumber(ARGV[p + 1])
    keep.most = 0
    for l = 1, levels do
      local behind = tonumber(ARGV[p + 1 + l])
      if behind >= 0 then
        keep[l], keep.most = behind, keep.most + behind + 1
      end
    end
    list[i], p = keep, p + 1 + levels
  end
  return list, p + 1
end

-- fallen returns those fields of a hash, given as a flat list, that are further behind the newest
-- of their level than the level keeps.
local function fallen(flat, keep)
  local newest, gone = {}, {}
  for pass = 1, 2 do
    for i = 1, #flat, 2 do
      local field = tonumber(flat[i]) or -1
      local level = field % 10 + 1
      if keep[level] then
        local index = (field - level + 1) / 10
        if pass == 1 then
          newest[level] = math.max(newest[level] or 0, index)
        elseif index < newest[level] - keep[level] then
          gone[#gone + 1] = flat[i]
        end
      end
    end
  end
  return gone
end

-- discard deletes the fields from position first to last of ARGV or of a list. Lua can't unpack
-- more than about 8,000 at a time.
local function discard(key, list, first, last)
  for j = first, last, 1000 do
    redis.pcall(HDEL, key, unpack(list, j, math.min(j + 999, last)))
  end
end

-- purge deletes what a hash no longer needs if it holds more buckets than its ladder has. It
-- reports whether it deleted anything.
local function purge(key, keep)
  local n = redis.pcall(HLEN, key)
  if not keep or type(n) == 'table' or n <= keep.most then return end
  local flat = redis.pcall(HGETALL, key)
  if flat.err then return end
  local gone = fallen(flat, keep)
  discard(key, gone, 1, #gone)
  return #gone > 0
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
