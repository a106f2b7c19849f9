local WIDTH, HGET, HDEL, HLEN, HGETALL = 2, 'HGET', 'HDEL', 'HLEN', 'HGETALL'
local function add(key, field, delta)
  return redis.pcall('HINCRBY', key, field, delta)
end
