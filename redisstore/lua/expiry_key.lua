local WIDTH, HGET, HDEL, HLEN, HGETALL, HSET = 2, 'HGET', 'HDEL', 'HLEN', 'HGETALL', 'HSET'
local COPY = 'COPY' -- copies a hash along with all times to live, if there is such a command
local AGING = false -- whether buckets go by age, even if no newer ones come
local function add(key, field, delta)
  return redis.pcall('HINCRBY', key, field, delta)
end
