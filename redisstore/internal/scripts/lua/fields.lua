-- Changes fields of a Hash, if they are as they were read: all of them, or none.
--
-- KEYS: the Hash.
--
-- ARGV: for each field its name, what was read ('' if it was not there), and the new value. If the
-- first new value is '', the fields are deleted.
--
-- Reply: 1 if they were changed, 0 if not. The driver may send this again after it was carried out.
for i = 1, #ARGV, 3 do
  if (redis.call('HGET', KEYS[1], ARGV[i]) or '') ~= ARGV[i + 1] then return 0 end
end
for i = 1, #ARGV, 3 do
  if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
  end
end
return 1
