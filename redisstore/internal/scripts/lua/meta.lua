-- Changes fields of tt:meta, if they are as they were read: all of them, or none.
--
-- KEYS: tt:meta.
--
-- ARGV: for each field its name, what was read ('' if it was not there), and the new value.
--
-- Reply: 1 if they were changed, 0 if not.
for i = 1, #ARGV, 3 do
  if (redis.call('HGET', KEYS[1], ARGV[i]) or '') ~= ARGV[i + 1] then return 0 end
end
for i = 1, #ARGV, 3 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
return 1
