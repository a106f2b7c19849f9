-- Reads on in the list of a partition's keys.
--
-- KEYS: state of the partition.
--
-- ARGV: how far the list was read: epoch, part, offset in it; how many bytes to read at most; what
-- was last said of the partition: epoch or 0, version, quieted, last change or ''.
--
-- Reply: {1, epoch, version, quieted, last change, part, offset, whether this is the beginning of
-- the list (0 or 1), hashes}. Fewer bytes than were asked for are the end of the list. {0, epoch} if
-- the list is not complete, {2, epoch} if data was lost.
local state = redis.call('HMGET', KEYS[1], 'e', 'c', 'k', 'v', 'q', 'l')
local epoch, last = state[1] or '0', tonumber(state[3] or '0')
if ARGV[5] ~= '0' and (ARGV[5] ~= epoch or tonumber(state[4] or '0') < tonumber(ARGV[6]) or
  tonumber(state[5] or '0') < tonumber(ARGV[7]) or lacks(ARGV[8], state[6] or '')) then
  return {2, epoch}
end
local part, at, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if state[2] ~= '1' then return {0, epoch} end

local begun = ARGV[1] ~= epoch or part < last - 1 or part > last
if begun then part, at = math.max(0, last - 1), 0 end

-- read returns at most n bytes of the current part.
local function read(n)
  if n <= 0 then return '' end
  local stem = string.sub(KEYS[1], 1, -2) .. 'k:'
  local hashes = redis.call('GETRANGE', stem .. part, at, at + n - 1)
  at = at + #hashes
  return hashes
end

local hashes = read(most)
if part < last and #hashes < most then
  part, at = last, 0
  hashes = hashes .. read(most - #hashes)
end
return {1, epoch, tonumber(state[4] or '0'), tonumber(state[5] or '0'), state[6] or '', part, at,
  begun and 1 or 0, hashes}
