-- begin draws an epoch for a partition of which nothing is there: the time, as nothing that is lost can be from the future.
local function begin(state)
  local now = redis.call('TIME')
  local epoch = string.format('%.0f', now[1] * 1000000 + now[2])
  redis.call('HSET', state, 'e', epoch)
  return tonumber(epoch)
end
