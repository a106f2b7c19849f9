local HGET, HDEL, HLEN, HGETALL, HSET = 'HGET', 'HDEL', 'HLEN', 'HGETALL', 'HSET'
local COPY = 'COPY' -- copies a hash along with all times to live, if there is such a command
local function add(key, field, delta)
  return redis.pcall('HINCRBY', key, field, delta)
end
