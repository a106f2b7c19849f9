-- Compares the distinct values of a key with what the caller has merged, and writes if they are the
-- same.
--
-- KEYS: the key's hash of sets.
--
-- ARGV: the version that the caller has, '' if none; the version to write, '' to write nothing; ttl;
-- number of buckets to write, then each with its set; the buckets to delete.
--
-- Reply: {version that was found} and, if it is not the caller's, all fields of the hash.
local found = redis.call('HGET', KEYS[1], 'v') or ''
if found ~= ARGV[1] then return {found, redis.call('HGETALL', KEYS[1])} end
if ARGV[2] == '' then return {found} end
-- If Redis refuses to write, it does so here.
redis.call('HSET', KEYS[1], 'v', ARGV[2])
local p = 5
for _ = 1, tonumber(ARGV[4]) do
  redis.call('HSET', KEYS[1], ARGV[p], ARGV[p + 1])
  p = p + 2
end
for i = p, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {found}
