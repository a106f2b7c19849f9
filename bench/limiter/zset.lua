-- KEYS[i] is the log of check i.
-- ARGV: now, a name for this call, then for each check: n, longest window, number of rules, and
-- window and max of each.
local now, id = tonumber(ARGV[1]), ARGV[2]
local a = 3
local add = {}
for i = 1, #KEYS do
  local n, longest, rules = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  a = a + 3
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now - longest)
  for _ = 1, rules do
    local window, max = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    a = a + 2
    local held
    if window == longest then
      held = redis.call('ZCARD', KEYS[i])
    else
      held = redis.call('ZCOUNT', KEYS[i], string.format('(%.0f', now - window), '+inf')
    end
    if held + n > max then return 0 end
  end
  add[i] = {n, longest}
end
for i = 1, #KEYS do
  for e = 1, add[i][1] do
    redis.call('ZADD', KEYS[i], now, id .. ':' .. e)
  end
  redis.call('PEXPIRE', KEYS[i], add[i][2])
end
return 1
