local WIDTH, HGET, HDEL, HLEN, HGETALL, HSET = 3, 'HGET', 'HDEL', 'HLEN', 'HGETALL', nil
local COPY = 'COPY' -- copies a hash along with all times to live, if there is such a command
local AGING = true -- whether buckets go by age, even if no newer ones come
local function add(key, field, delta, ttl)
  local v = redis.pcall('HINCRBY', key, field, delta)
  -- A bucket that already existed has its time to live.
  if type(v) ~= 'table' and v == tonumber(delta) then
    redis.pcall('HPEXPIRE', key, ttl, 'FIELDS', 1, field)
  end
  return v
end
