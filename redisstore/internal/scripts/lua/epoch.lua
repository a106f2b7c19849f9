-- begin draws an epoch for a partition. It returns the epoch and the version that the data then
-- has. The epoch is the time, because nothing that was lost can come from the future, but is always
-- above floor, whatever the clock says. version is that of the data that a loss left behind, nil if
-- nothing is there: then the list of keys that begins with it is complete.
local function begin(state, floor, version)
  local now = redis.call('TIME')
  local epoch = math.max(now[1] * 1000000 + now[2], (floor or 0) + 1)
  local left = version and '1' or '0'
  version = (version or 0) + 1
  redis.call('HSET', state, 'e', string.format('%.0f', epoch), 'v', version, 's', left)
  if left == '0' then redis.call('HSET', state, 'c', '1') end
  return epoch, version
end

-- append adds hashes of keys to the list of a partition's keys, of which this then exists for at
-- least ttl and an eighth, as syncer.ListTTL says. part is the number of the last part of the list.
-- The next one is begun when the one before is gone, so that there are never more than two.
local function append(state, part, hashes, ttl)
  local call, stem = redis.call, string.sub(state, 1, -2) .. 'k:'
  ttl = ttl + math.floor(ttl / 8)
  local left = part > 0 and call('PTTL', stem .. part) or -2
  if left < ttl and (left == -2 or call('EXISTS', stem .. part - 1) == 0) then
    part = part + 1
    call('HSET', state, 'k', part)
  end
  call('APPEND', stem .. part, hashes)
  if left < ttl then call('PEXPIRE', stem .. part, ttl + math.floor(ttl / 4)) end
end

-- list is append, but never fails: a list that can't be written is no longer complete.
local function list(state, part, hashes, ttl)
  if not pcall(append, state, tonumber(part or '0'), hashes, tonumber(ttl)) then
    redis.pcall('HDEL', state, 'c')
  end
end

-- survived reports whether any of the keys exists, looking at every step-th from first to last. If
-- one does, the state of the partition was lost without its counts.
local function survived(first, last, step)
  for k = first, last, step do
    if redis.pcall('EXISTS', KEYS[k]) == 1 then return true end
  end
  return false
end
