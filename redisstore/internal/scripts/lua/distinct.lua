-- Compares the distinct values of a key with what the caller has merged, and writes if they are the
-- same.
--
-- KEYS: the key's hash of sets.
--
-- ARGV: the version that the caller has, '' if none; the version to write, '' to write nothing; ttl;
-- the mark of the last reset that the caller knows of, '' if none; whether to make it now (0 or 1);
-- number of buckets to delete, then each; the buckets to write, each with its set.
--
-- Reply: {version that was found} and, if it is not the caller's, all fields of the hash.
local found = redis.call('HGET', KEYS[1], 'v') or ''
if found ~= ARGV[1] then return {found, redis.call('HGETALL', KEYS[1])} end
if ARGV[2] == '' then return {found} end
-- If Redis refuses to write, it does so here.
redis.call('HSET', KEYS[1], 'v', ARGV[2])
if ARGV[5] == '1' then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'v', ARGV[2])
end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'r', ARGV[4]) end
local sets = 7 + tonumber(ARGV[6])
for i = 7, sets - 1 do redis.call('HDEL', KEYS[1], ARGV[i]) end
for i = sets, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {found}
