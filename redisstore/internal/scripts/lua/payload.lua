-- Tries whether RESTORE makes a Hash of a payload.
--
-- KEYS: a key of its own, which is deleted afterwards.
--
-- ARGV: a payload with one event; its time.
--
-- Reply: the count of the event; or an error.
redis.pcall('RESTORE', KEYS[1], '1000', ARGV[1], 'REPLACE')
local count = redis.pcall('HGET', KEYS[1], ARGV[2])
redis.pcall('DEL', KEYS[1])
return count
