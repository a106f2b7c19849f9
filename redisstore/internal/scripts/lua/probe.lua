-- Tries commands on a key of its own, which is deleted afterwards.
--
-- KEYS: that key.
--
-- ARGV: the commands, each followed by the number of its arguments after the key (-1: it takes no
-- key) and by these arguments.
--
-- Reply: {command, error, ...} of the commands that failed.
local failed, a = {}, 1
while a <= #ARGV do
  local command, n = ARGV[a], tonumber(ARGV[a + 1])
  local reply
  if n < 0 then
    reply = redis.pcall(command)
  else
    reply = redis.pcall(command, KEYS[1], unpack(ARGV, a + 2, a + 1 + n))
  end
  if type(reply) == 'table' and reply.err then
    failed[#failed + 1] = command
    failed[#failed + 1] = reply.err
  end
  a = a + 2 + math.max(n, 0)
end
return failed
