-- KEYS[i] is the Hash of one key's counters of one width.
-- ARGV: 1 if buckets get a time to live of their own when they are new, and nothing deletes them,
-- or 0; then for each of KEYS: n, index of the present bucket, index of the oldest that any window
-- can see, life of the key in milliseconds, number of rules, and for each rule the oldest bucket
-- that it sums and its max. Buckets are always chosen by their index: the server's clock runs on
-- while a trace stands still.
local expire = ARGV[1] == '1'
local a = 2
local add = {}
for i = 1, #KEYS do
  local n, current = tonumber(ARGV[a]), ARGV[a + 1]
  local keep, rules = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 4])
  add[i] = {n, current, ARGV[a + 3]}
  a = a + 5
  local buckets = redis.call('HGETALL', KEYS[i])
  local stale = {}
  for b = 1, #buckets, 2 do
    if not expire and tonumber(buckets[b]) < keep then stale[#stale + 1] = buckets[b] end
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
  local n, field, life = add[i][1], add[i][2], add[i][3]
  local held = redis.call('HINCRBY', KEYS[i], field, n)
  if not expire then
    redis.call('PEXPIRE', KEYS[i], life)
  elseif held == n then
    redis.call('HPEXPIRE', KEYS[i], life, 'FIELDS', 1, field)
  end
end
return 1
