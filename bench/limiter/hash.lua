-- KEYS[i] is the Hash of one key's counters of one width.
-- ARGV: for each of KEYS: n, index of the present bucket, index of the oldest that any window can
-- see, life of the key in milliseconds, number of rules, and for each rule the oldest bucket that
-- it sums and its max.
local a = 1
local add = {}
for i = 1, #KEYS do
  local n, current = tonumber(ARGV[a]), ARGV[a + 1]
  local keep, rules = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 4])
  add[i] = {n, current, ARGV[a + 3]}
  a = a + 5
  local buckets = redis.call('HGETALL', KEYS[i])
  local stale = {}
  for b = 1, #buckets, 2 do
    if tonumber(buckets[b]) < keep then stale[#stale + 1] = buckets[b] end
  end
  if #stale > 0 then redis.call('HDEL', KEYS[i], unpack(stale)) end
  for _ = 1, rules do
    local oldest, max = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    a = a + 2
    local held = 0
    for b = 1, #buckets, 2 do
      if tonumber(buckets[b]) >= oldest then held = held + tonumber(buckets[b + 1]) end
    end
    if held + n > max then return 0 end
  end
end
for i = 1, #KEYS do
  redis.call('HINCRBY', KEYS[i], add[i][2], add[i][1])
  redis.call('PEXPIRE', KEYS[i], add[i][3])
end
return 1
