local HGET, HDEL, HLEN, HGETALL, HSET = 'EXHGET', 'EXHDEL', 'EXHLEN', 'EXHGETALL', nil
local COPY = nil -- copies a hash along with all times to live, if there is such a command
local function add(key, field, delta, ttl)
  local v = redis.pcall('EXHINCRBY', key, field, delta)
  -- EXHINCRBY takes a time to live away. With PX it would set one, but replicas and the append-only
  -- file get the sum of that and the present as the time at which the field expires.
  if type(v) ~= 'table' and ttl ~= '0' then redis.pcall('EXHPEXPIRE', key, field, ttl) end
  return v
end
