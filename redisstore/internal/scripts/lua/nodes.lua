-- Renews the entry of a process, and lists all entries that have not run out. Deletes the others.
--
-- KEYS: the entries.
--
-- ARGV: name of the process, its record, how long the entry lives in milliseconds.
--
-- Reply: for each entry its name, when it runs out (unix milliseconds), how long that is from now,
-- and its record. The driver may send this again after it was carried out.
local time = redis.call('TIME')
local now, lease = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now + lease, ARGV[2]))
redis.call('PEXPIRE', KEYS[1], lease)
local all, reply = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local ends, record = string.match(all[i + 1], '^(%d+) (.*)$')
  local left = (tonumber(ends) or 0) - now
  if left <= 0 then
    redis.call('HDEL', KEYS[1], all[i])
  else
    reply[#reply + 1] = all[i]
    reply[#reply + 1] = ends
    reply[#reply + 1] = left
    reply[#reply + 1] = record
  end
end
return reply
