local HGET, HDEL, HLEN, HGETALL, HSET = 'HGET', 'HDEL', 'HLEN', 'HGETALL', nil
local COPY = 'COPY' -- copies a hash along with all times to live, if there is such a command
local function add(key, field, delta, ttl)
  local v = redis.pcall('HINCRBY', key, field, delta)
  -- A bucket that already existed has its time to live.
  if type(v) ~= 'table' and v == tonumber(delta) and ttl ~= '0' then
    redis.pcall('HPEXPIRE', key, ttl, 'FIELDS', 1, field)
  end
  return v
end
