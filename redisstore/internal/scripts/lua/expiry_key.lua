local HGET, HMGET, HDEL, HLEN, HGETALL = 'HGET', 'HMGET', 'HDEL', 'HLEN', 'HGETALL'
local HINCR = 'HINCRBY' -- counts in a field, if that needs no more than one command
local function add(key, field, delta)
  return redis.pcall('HINCRBY', key, field, delta)
end
-- put writes fields of a key. It returns an error, if there is one.
local function put(key, sets)
  local done = redis.pcall('HSET', key, unpack(sets))
  if type(done) == 'table' then return done end
end
-- set writes fields of a key, and its version. It returns an error, if there is one.
local function set(key, version, sets, ttl)
  for i = 1, #sets, 2000 do
    local done = redis.pcall('HSET', key, 'v', version, unpack(sets, i, math.min(i + 1999, #sets)))
    if type(done) == 'table' then return done end
  end
  if #sets == 0 then return redis.pcall('HSET', key, 'v', version) end
end
