local HGET, HMGET, HDEL, HLEN = 'HGET', 'HMGET', 'HDEL', 'HLEN'
local HGETALL = 'HGETALL'
-- put writes fields of a key. It returns how many are new, or an error.
local function put(key, ttl, ...) return redis.pcall('HSET', key, ...) end
-- set writes fields of a key, and its version. It returns an error, if there is one.
local function set(key, version, sets, ttl)
  for i = 1, #sets, 2000 do
    local done = redis.pcall('HSET', key, 'v', version, unpack(sets, i, math.min(i + 1999, #sets)))
    if type(done) == 'table' then return done end
  end
  if #sets == 0 then return redis.pcall('HSET', key, 'v', version) end
end
