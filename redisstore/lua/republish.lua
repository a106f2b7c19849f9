-- Restores counts after a loss. A record next to each key says how much of each bucket was restored
-- in this epoch, and only what is missing is added. So the sum is right whoever restores first, and
-- whatever was counted since.
--
-- KEYS: sequence of the writer, state of the partition, then for each key its hash and its record.
--
-- ARGV: the ladders, then sequence, nonce, acknowledged, ttl of the sequence and of the records,
-- epoch, version, quieted, last change or '', the change that this one is, the epoch after which a
-- new one is drawn, hashes for the list of keys, their ttl, then for each key: position of its
-- ladder or 0, ttl or 0, number of buckets, the buckets (field, count[, ttl of the field]).
--
-- Reply: {status, version, quieted, epoch, last change, what every bucket holds ...}, with the same
-- status as for a round.
local call, try = redis.call, redis.pcall
local lists, a = ladders(1)
local seq, nonce, recordTTL = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 3]
local stored, by = progress(KEYS[1])
local state = call('HMGET', KEYS[2], 'e', 'v', 'q', 'l', 's', 'k')
local epoch, version = tonumber(state[1] or '0'), tonumber(state[2] or '0')
local quieted, last = tonumber(state[3] or '0'), state[4] or ''
if stored < tonumber(ARGV[a + 2]) or epoch ~= tonumber(ARGV[a + 4]) or
  version < tonumber(ARGV[a + 5]) or quieted < tonumber(ARGV[a + 6]) or
  lacks(ARGV[a + 7], last) then
  return {1, version, quieted, epoch, last}
end
if stored == seq and by ~= nonce then return {2, version, quieted, epoch, last} end
local fresh, after, left = seq > stored, tonumber(ARGV[a + 9]), state[5] == '1'
if fresh then
  if epoch <= after then
    left = epoch ~= 0 or survived(3, #KEYS, 2)
    epoch, version = begin(KEYS[2], after, left and version or nil)
  else
    version = version + 1
  end
  last = ARGV[a + 8]
  call('HSET', KEYS[2], 'v', version, 'l', last)
  list(KEYS[2], state[6], ARGV[a + 10], ARGV[a + 11])
  call('SET', KEYS[1], ARGV[a] .. '.' .. nonce, 'PX', recordTTL)
end
local name = string.format('%.0f', epoch)

-- remembered returns a key's record of this epoch: nil if the key was reset in it, or if the record
-- can't be written.
local function remembered(record)
  local flat = try('HGETALL', record)
  if flat.err then return nil end
  local fields = {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  if fields.e == name then return not fields.x and fields or nil end
  try('DEL', record)
  if type(try('HSET', record, 'e', name)) == 'table' then return nil end
  return {}
end

-- raise restores a bucket up to count, and returns what it then holds.
local function raise(key, record, restored, field, count, ttl)
  local had = restored[field]
  if not had then had = left and try(HGET, key, field) or '0' end
  if type(had) == 'table' then return nil end
  local missing = tonumber(count) - tonumber(had)
  if type(try('HSET', record, field, missing > 0 and count or had)) == 'table' then return nil end
  -- The newest bucket of a level is kept even if it is zero.
  if missing < 0 or missing == 0 and tonumber(count) ~= 0 then
    return tonumber(try(HGET, key, field) or '0')
  end
  local v = add(key, field, string.format('%.0f', missing), ttl)
  if type(v) ~= 'table' then return tonumber(v) end
  try('HSET', record, field, had)
end

local out, o = {stored > seq and 3 or 0, version, quieted, epoch, last}, 6
a = a + 12
for i = 3, #KEYS, 2 do
  local key, record, keep = KEYS[i], KEYS[i + 1], lists[tonumber(ARGV[a])]
  local ttl, n = ARGV[a + 1], tonumber(ARGV[a + 2])
  a = a + 3
  local restored = fresh and remembered(record)
  local refused = type(try(HLEN, key)) == 'table'
  for _ = 1, n do
    local v
    if refused then
      v = ARGV[a + 1]
    elseif restored then
      v = raise(key, record, restored, ARGV[a], ARGV[a + 1], ARGV[a + 2])
    else
      v = try(HGET, key, ARGV[a]) or '0'
    end
    out[o], o = tonumber(v) or tonumber(ARGV[a + 1]), o + 1
    a = a + WIDTH
  end
  if fresh and not refused then
    try('PEXPIRE', record, recordTTL)
    if ttl ~= '0' then try('PEXPIRE', key, ttl) end
    if keep then purge(key, keep) end
  end
end
return out
