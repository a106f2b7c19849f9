-- KEYS[i] is the stream of check i.
-- ARGV: now, then as in zset.lua. XRANGE asks for no more entries than decide the question; XLEN
-- can't replace it, because MINID ~ leaves what has expired until a whole node can go.
local now = tonumber(ARGV[1])
local a = 2
local add = {}
for i = 1, #KEYS do
  local n, longest, rules = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  a = a + 3
  for _ = 1, rules do
    local window, max = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    a = a + 2
    local room = max - n
    if room < 0 then return 0 end
    local from = string.format('%.0f', now - window + 1)
    if #redis.call('XRANGE', KEYS[i], from, '+', 'COUNT', room + 1) > room then return 0 end
  end
  add[i] = {n, longest}
end
local id = string.format('%.0f-*', now)
for i = 1, #KEYS do
  local oldest = string.format('%.0f', now - add[i][2] + 1)
  for _ = 1, add[i][1] do
    local ok = redis.pcall('XADD', KEYS[i], 'MINID', '~', oldest, id, 'e', '')
    if type(ok) == 'table' and ok.err then
      local last = redis.call('XREVRANGE', KEYS[i], '+', '-', 'COUNT', 1)[1][1]
      redis.call('XADD', KEYS[i], 'MINID', '~', oldest, string.match(last, '^%d+') .. '-*', 'e', '')
    end
  end
  redis.call('PEXPIRE', KEYS[i], add[i][2])
end
return 1
