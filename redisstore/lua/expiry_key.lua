local WIDTH, HGET, HDEL, HLEN, HGETALL, HSET = 2, 'HGET', 'HDEL', 'HLEN', 'HGETALL', 'HSET'
local AGING = false -- whether buckets go by age, whether or not newer ones came
local function add(key, field, delta)
  return redis.pcall('HINCRBY', key, field, delta)
end
