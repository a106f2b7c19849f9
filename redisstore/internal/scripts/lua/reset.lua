-- Resets a single key, as a round does.
--
-- KEYS: state of the partition, the key's hash.
--
-- ARGV: ttl of the restoration record.
local state, key = KEYS[1], KEYS[2]
-- If Redis refuses to write, it does so here, before the key is gone.
local version = redis.call('HINCRBY', state, 'v', 1)
local epoch = tonumber(redis.call('HGET', state, 'e') or '0')
if epoch == 0 then epoch = begin(state, 0, survived(2, 2, 1) and version - 1 or nil) end
local err = forget(key, epoch, ARGV[1])
return err and redis.error_reply(err) or epoch
