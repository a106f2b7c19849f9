-- Stores a version of the rules, if the newest one that there is lies within bounds.
--
-- KEYS: the rules.
--
-- ARGV: lowest and highest number that the newest version may have (0: there is none); number, ID
-- and record of the version to store; how many versions are kept.
--
-- Reply: 1 if it is stored, 0 if not. The driver may send this again after it was carried out, and
-- others may have stored the next versions since: then it is stored.
local newest = tonumber(redis.call('HGET', KEYS[1], 'v') or '0')
if newest < tonumber(ARGV[1]) or newest > tonumber(ARGV[2]) then
  return redis.call('HGET', KEYS[1], ARGV[3]) == ARGV[5] and 1 or 0
end
local number, kept = tonumber(ARGV[3]), tonumber(ARGV[6])
redis.call('HSET', KEYS[1], 'v', number, 'i', ARGV[4], number, ARGV[5])
for old = number - kept, number - 2 * kept + 1, -1 do
  if old < 1 or redis.call('HDEL', KEYS[1], old) == 0 then break end
end
return 1
