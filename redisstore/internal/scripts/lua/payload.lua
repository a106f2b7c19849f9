-- Tries whether RESTORE makes a Hash of a payload.
--
-- KEYS: a key of its own, which is deleted afterwards.
--
-- ARGV: a payload, and the name of a field in it.
--
-- Reply: what the field has; or an error.
redis.pcall('RESTORE', KEYS[1], '1000', ARGV[1], 'REPLACE')
local value = redis.pcall('HGET', KEYS[1], ARGV[2])
redis.pcall('DEL', KEYS[1])
return value
