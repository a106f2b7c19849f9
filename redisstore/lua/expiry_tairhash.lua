local WIDTH, HGET, HDEL, HLEN, HGETALL, HSET = 3, 'EXHGET', 'EXHDEL', 'EXHLEN', 'EXHGETALL', nil
local AGING = true -- whether buckets go by age, even if no newer ones come
local function add(key, field, delta, ttl)
  return redis.pcall('EXHINCRBY', key, field, delta, 'PX', ttl)
end
