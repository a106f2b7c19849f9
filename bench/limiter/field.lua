-- As hash.lua, but every bucket is given its own time to live when it is new, and nothing deletes
-- it. Buckets are still chosen by their index: the server's clock runs on while a trace stands
-- still.
local a = 1
local add = {}
for i = 1, #KEYS do
  local n, rules = tonumber(ARGV[a]), tonumber(ARGV[a + 4])
  add[i] = {n, ARGV[a + 1], ARGV[a + 3]}
  a = a + 5
  local buckets = redis.call('HGETALL', KEYS[i])
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
  if redis.call('HINCRBY', KEYS[i], field, n) == n then
    redis.call('HPEXPIRE', KEYS[i], life, 'FIELDS', 1, field)
  end
end
return 1
