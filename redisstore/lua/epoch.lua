-- begin draws an epoch for a partition. It returns the epoch and the version that the data then
-- has. The epoch is the time, because nothing that was lost can come from the future, but is always
-- above floor, whatever the clock says. version is that of the data that a loss left behind, nil if
-- nothing is there.
local function begin(state, floor, version)
  local now = redis.call('TIME')
  local epoch = math.max(now[1] * 1000000 + now[2], (floor or 0) + 1)
  local left = version and '1' or '0'
  version = (version or 0) + 1
  redis.call('HSET', state, 'e', string.format('%.0f', epoch), 'v', version, 's', left)
  return epoch, version
end

-- survived reports whether any of the keys exists, looking at every step-th from first to last. If
-- one does, the state of the partition was lost without its counts.
local function survived(first, last, step)
  for k = first, last, step do
    if redis.pcall('EXISTS', KEYS[k]) == 1 then return true end
  end
  return false
end
