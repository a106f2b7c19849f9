local WIDTH, HGET, HDEL, HLEN, HGETALL = 3, 'EXHGET', 'EXHDEL', 'EXHLEN', 'EXHGETALL'
local function add(key, field, delta, ttl)
  return redis.pcall('EXHINCRBY', key, field, delta, 'PX', ttl)
end
