local HGET, HMGET, HDEL, HLEN = 'HGET', 'HMGET', 'HDEL', 'HLEN'
local HGETALL = 'HGETALL'
-- put writes fields of a key. It returns how many are new, or an error.
local function put(key, ttl, ...)
  local new, sets, names = redis.pcall('HSET', key, ...), {...}, {}
  for i = 1, #sets, 2 do names[#names + 1] = sets[i] end
  if type(new) ~= 'table' and ttl ~= '0' then
    redis.pcall('HPEXPIRE', key, ttl, 'FIELDS', #names, unpack(names))
  end
  return new
end
-- set writes fields of a key, and its version, which lives as long as the key. It returns an error,
-- if there is one.
local function set(key, version, sets, ttl)
  for i = 1, #sets, 2000 do
    local last = math.min(i + 1999, #sets)
    local done = redis.pcall('HSET', key, 'v', version, unpack(sets, i, last))
    if type(done) == 'table' and done.err then return done end
    local names = {}
    for j = i, last, 2 do names[#names + 1] = sets[j] end
    done = redis.pcall('HPEXPIRE', key, ttl, 'FIELDS', #names, unpack(names))
    if done.err then return done end
  end
  if #sets == 0 then return redis.pcall('HSET', key, 'v', version) end
end
