local HGET, HDEL, HLEN, HGETALL = 'HGET', 'HDEL', 'HLEN', 'HGETALL'
local HINCR = 'HINCRBY' -- counts in a field, if that needs no more than one command
local function add(key, field, delta)
  return redis.pcall('HINCRBY', key, field, delta)
end
