-- Compares the distinct values of a key with what the caller has merged, and writes if they are the
-- same.
--
-- KEYS: the key's hash of chunks.
--
-- ARGV: the version that the caller has, '' if none; the version to write, '' to write nothing; ttl;
-- the head, '' if there is none; the chunks to write, each with its values, '' to delete it.
--
-- Reply: {version that was found} and, if it is not the caller's, all fields of the hash.
local found = redis.call('HGET', KEYS[1], 'v') or ''
if found ~= ARGV[1] then return {found, redis.call('HGETALL', KEYS[1])} end
if ARGV[2] == '' then return {found} end
-- If Redis refuses to write, it does so here.
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'h', ARGV[4])
for i = 5, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {found}
