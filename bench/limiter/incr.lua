-- KEYS[i] is the counter of one rule in its present calendar window.
-- ARGV for each: n, max, life in milliseconds.
for i = 1, #KEYS do
  local held = tonumber(redis.call('GET', KEYS[i]) or 0)
  if held + tonumber(ARGV[3 * i - 2]) > tonumber(ARGV[3 * i - 1]) then return 0 end
end
for i = 1, #KEYS do
  local n = tonumber(ARGV[3 * i - 2])
  if redis.call('INCRBY', KEYS[i], n) == n then
    redis.call('PEXPIRE', KEYS[i], ARGV[3 * i])
  end
end
return 1
