local HGET, HMGET, HDEL = 'EXHGET', 'EXHMGET', 'EXHDEL'
local HLEN, HGETALL = 'EXHLEN', 'EXHGETALL'
-- put writes fields of a key. It returns how many are new, or an error.
local function put(key, ttl, ...)
  local new, sets = 0, {...}
  for i = 1, #sets, 2 do
    local done = redis.pcall('EXHSET', key, sets[i], sets[i + 1])
    if type(done) == 'table' then return done end
    if ttl ~= '0' then redis.pcall('EXHPEXPIRE', key, sets[i], ttl) end
    new = new + done
  end
  return new
end
-- set writes fields of a key, and its version, which lives as long as the key. It returns an error,
-- if there is one.
local function set(key, version, sets, ttl)
  for i = 1, #sets, 2 do
    local done = redis.pcall('EXHSET', key, sets[i], sets[i + 1])
    if type(done) == 'table' then return done end
    redis.pcall('EXHPEXPIRE', key, sets[i], ttl)
  end
  return redis.pcall('EXHSET', key, 'v', version)
end
