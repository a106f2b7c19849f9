-- Restores counts after a loss: raises every bucket to at least what it should hold. Sending it twice changes nothing, and
-- neither does sending it once the sequence is restored: what was counted since must not be told twice.
-- Nor does sending a part after another that has been lost in the meantime: the epoch tells.
-- KEYS as for a round. ARGV: sequence, 1 if it is to be stored now, its ttl, epoch, then for each key: ttl,
-- number of buckets, the buckets (field, count[, ttl of the field]). Reply: {lost, version, epoch}.
local state = redis.call('HMGET', KEYS[2], 'e', 'v')
local epoch, version = tonumber(state[1] or '0'), tonumber(state[2] or '0')
if epoch ~= tonumber(ARGV[4]) then return {1, version, epoch} end
local stored, known = string.match(redis.call('GET', KEYS[1]) or '0', '^(%d+)(k?)')
if known == 'k' and tonumber(stored) >= tonumber(ARGV[1]) then return {0, version, epoch} end
version = redis.call('HINCRBY', KEYS[2], 'v', 1)
if epoch == 0 then epoch = begin(KEYS[2]) end
if ARGV[2] == '1' then redis.call('SET', KEYS[1], ARGV[1] .. 'k', 'PX', ARGV[3]) end
local a = 5
for i = 3, #KEYS do
  local key, ttl, n = KEYS[i], ARGV[a], tonumber(ARGV[a + 1])
  a = a + 2
  local foreign = false
  for j = 1, n do
    local have = redis.pcall(HGET, key, ARGV[a]) or '0'
    if type(have) == 'table' then
      foreign = true
    else
      local missing = tonumber(ARGV[a + 1]) - tonumber(have)
      if missing > 0 then add(key, ARGV[a], string.format('%.0f', missing), ARGV[a + 2]) end
    end
    a = a + WIDTH
  end
  if ttl ~= '0' and not foreign then redis.call('PEXPIRE', key, ttl) end
end
return {0, version, epoch}
