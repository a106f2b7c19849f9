local WIDTH, HGET, HDEL, HLEN, HGETALL, HSET = 2, 'HGET', 'HDEL', 'HLEN', 'HGETALL', 'HSET'
local function add(key, field, delta)
  return redis.pcall('HINCRBY', key, field, delta)
end
