local HGET, HDEL, HLEN, HGETALL = 'EXHGET', 'EXHDEL', 'EXHLEN', 'EXHGETALL'
local HINCR = nil -- counts in a field, if that needs no more than one command
local function add(key, field, delta, ttl)
  local v = redis.pcall('EXHINCRBY', key, field, delta)
  -- EXHINCRBY takes a time to live away. With PX it would set one, but replicas and the append-only
  -- file get the sum of that and the present as the time at which the field expires.
  if type(v) ~= 'table' and ttl ~= '0' then redis.pcall('EXHPEXPIRE', key, field, ttl) end
  return v
end
