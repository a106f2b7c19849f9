-- Tries whether RESTORE makes a Hash of a payload.
--
-- KEYS: a key of its own, which is deleted afterwards.
--
-- ARGV: a payload with one event.
--
-- Reply: the field that lists it; or an error.
redis.pcall('RESTORE', KEYS[1], '1000', ARGV[1], 'REPLACE')
local list = redis.pcall('HGET', KEYS[1], 'o')
redis.pcall('DEL', KEYS[1])
return list
