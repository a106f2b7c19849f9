local HGET, HDEL, HLEN, HGETALL = 'HGET', 'HDEL', 'HLEN', 'HGETALL'
local HINCR = nil -- counts in a field, if that needs no more than one command
local function add(key, field, delta, ttl)
  local v = redis.pcall('HINCRBY', key, field, delta)
  -- A bucket that already existed has its time to live.
  if type(v) ~= 'table' and v == tonumber(delta) and ttl ~= '0' then
    redis.pcall('HPEXPIRE', key, ttl, 'FIELDS', 1, field)
  end
  return v
end
