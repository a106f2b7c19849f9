-- progress returns how far a writer has come: the sequence of its last round and the nonce, and all
-- that is stored: these with a dot between, and after a colon the positions of the keys that were
-- refused.
local function progress(writer)
  local kept = redis.call('GET', writer) or '0'
  local seq, nonce = string.match(kept, '^(%d+)%.?(%d*)')
  return tonumber(seq), nonce, kept
end

-- lacks reports whether a change that was told of is not part of the data, the last of which is
-- another. It says the sequence, when it was cut in seconds, and where the writer's is kept. Of one
-- that was made more than a day ago that may have expired.
local function lacks(told, last)
  if told == '' or told == last then return false end
  local seq, at, writer = string.match(told, '^(%d+) (%d+) (.*)')
  if not seq then return false end
  local stored, _, kept = progress(writer)
  if kept ~= '0' then return stored < tonumber(seq) end
  return redis.call('TIME')[1] - at < 86400
end

-- ladders reads from ARGV[p] on how many ladders there are and of each the number of levels and how
-- many buckets behind the newest are kept of each. It returns a list of them and where they end.
local function ladders(p)
  local list = {}
  for i = 1, tonumber(ARGV[p]) do
    local keep, levels = {}, tonumber(ARGV[p + 1])
    keep.most = levels
    for l = 1, levels do
      keep[l] = tonumber(ARGV[p + 1 + l])
      keep.most = keep.most + keep[l]
    end
    list[i], p = keep, p + 1 + levels
  end
  return list, p + 1
end

-- fallen returns the fields of a hash, as a flat list, that have fallen behind the newest of their
-- level by more than is kept.
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

-- discard deletes the fields from ARGV[first] or a list on. Lua can't unpack more than about 8,000
-- at a time.
local function discard(key, list, first, last)
  for j = first, last, 1000 do
    redis.pcall(HDEL, key, unpack(list, j, math.min(j + 999, last)))
  end
end

-- purge deletes what a hash no longer needs, if it holds more than its ladder has. It reports
-- whether it did.
local function purge(key, keep)
  local n = redis.pcall(HLEN, key)
  if not keep or type(n) == 'table' or n <= keep.most then return end
  local flat = redis.pcall(HGETALL, key)
  if flat.err then return end
  local gone = fallen(flat, keep)
  discard(key, gone, 1, #gone)
  return #gone > 0
end

-- recordOf is the name of what is remembered of a key's restoring.
local function recordOf(key)
  return (string.gsub(key, '}', '}!r', 1))
end

-- forget deletes a key, and lets nobody restore it in this epoch. It returns an error text if it
-- can't.
local function forget(key, epoch, ttl)
  local done = redis.pcall('DEL', key)
  if type(done) == 'table' then return done.err end
  local record = recordOf(key)
  redis.pcall('DEL', record)
  redis.pcall('HSET', record, 'e', string.format('%.0f', epoch), 'x', '1')
  redis.pcall('PEXPIRE', record, ttl)
end
