-- A sliding window of sub-windows, as in many articles: KEYS[1], now, width, number, limit.
local now, width, number, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local current = math.floor(now / width)
local sum = 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if tonumber(all[i]) <= current - number then
    redis.call('HDEL', KEYS[1], all[i])
  else
    sum = sum + tonumber(all[i + 1])
  end
end
if sum >= limit then
  return 0
end
redis.call('HINCRBY', KEYS[1], current, 1)
redis.call('PEXPIRE', KEYS[1], width * number)
return 1
