-- Restores counts after a loss. A record next to each key has the cells that were restored in this
-- epoch, and only what these lack is added. So the sum is right whoever restores first, however
-- precisely they know the events, and whatever was counted or has folded since. Values merge, and
-- need no record.
--
-- KEYS: sequence of the writer, state of the partition, then for each key its hash and its record.
--
-- ARGV: the ladders, then sequence, nonce, acknowledged, ttl of the sequence and of the records,
-- epoch, version, quieted, last change or '', the change that this one is, the epoch after which a
-- new one is drawn, the present, hashes for the list of keys, their ttl, then for each key: flags
-- as in a round, ttl, number of cells, the cells (field, count).
--
-- Reply: {status, version, quieted, epoch, last change, the count of every cell ...}, with the same
-- status as for a round. The count is at least the caller's, unless the key was reset.
local call, try = redis.call, redis.pcall
local lists, a = ladders(1)
local seq, nonce, recordTTL = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 3]
local stored, by = progress(KEYS[1])
local state = call('HMGET', KEYS[2], 'e', 'v', 'q', 'l', 's', 'k')
local epoch, version = tonumber(state[1] or '0'), tonumber(state[2] or '0')
local quieted, last = tonumber(state[3] or '0'), state[4] or ''
if stored < tonumber(ARGV[a + 2]) or epoch ~= tonumber(ARGV[a + 4]) or
  version < tonumber(ARGV[a + 5]) or quieted < tonumber(ARGV[a + 6]) or
  lacks(ARGV[a + 7], last) then
  return {1, version, quieted, epoch, last}
end
if stored == seq and by ~= nonce then return {2, version, quieted, epoch, last} end
local fresh, after, left = seq > stored, tonumber(ARGV[a + 9]), state[5] == '1'
if fresh then
  if epoch <= after then
    left = epoch ~= 0 or survived(3, #KEYS, 2)
    epoch, version = begin(KEYS[2], after, left and version or nil)
  else
    version = version + 1
  end
  last = ARGV[a + 8]
  call('HSET', KEYS[2], 'v', version, 'l', last)
  list(KEYS[2], state[6], ARGV[a + 11], ARGV[a + 12])
  call('SET', KEYS[1], ARGV[a] .. '.' .. nonce, 'PX', recordTTL)
end
local name = string.format('%.0f', epoch)

-- around returns the start and the width of a bucket that a stretch of time lies in: the stretch
-- itself, if it begins at a multiple of its width.
local function around(start, width)
  local w = width
  while w < 1e10 and start % w + width > w do w = w * 2 end
  return start - start % w, w
end

-- missing returns the cells to add to the restored ones, as leaparray.MissingCells does:
-- tables of {field, count}. Both lists have tables of {start, width, count}. Marks are no counts.
local function missing(known, restored)
  local all, adds = {}, {}
  local function put(cells, sign)
    for _, c in ipairs(cells) do
      if c[3] ~= 0 then all[#all + 1] = {c[1], c[2], sign * c[3]} end
    end
  end
  put(known, 1)
  put(restored, -1)
  table.sort(all, function(x, y)
    if x[1] == y[1] then return x[2] > y[2] end
    return x[1] < y[1]
  end)
  local i = 1
  while i <= #all do
    local start, past = all[i][1], all[i][1] + all[i][2]
    local sum, diff, same = 0, {}, true
    while i <= #all and all[i][1] < past do
      local c = all[i]
      local field = nameOf(c[1], c[2])
      diff[field] = (diff[field] or 0) + c[3]
      past, sum, i = math.max(past, c[1] + c[2]), sum + c[3], i + 1
    end
    for _, d in pairs(diff) do same = same and d >= 0 end
    if sum > 0 and not same then diff = {[nameOf(around(start, past - start))] = sum} end
    for field, d in pairs(diff) do
      if sum > 0 and d > 0 then adds[#adds + 1] = {field, d} end
    end
  end
  return adds
end

-- remembered returns the cells of a key that are restored: nil if the key was reset in this epoch,
-- or can't be read. Without a record in an epoch that began with what a loss left behind, these
-- are the cells found, and the second result is true: they have to be recorded.
local function remembered(key, record)
  local flat = try('HGETALL', record)
  if flat.err then return nil end
  local epoch, reset
  for i = 1, #flat, 2 do
    if flat[i] == 'e' then epoch = flat[i + 1] elseif flat[i] == 'x' then reset = true end
  end
  if epoch == name then return not reset and cellsOf(flat) or nil end
  if #flat > 0 then try('DEL', record) end -- it is of another epoch
  if not left then return {} end
  local found = try(HGETALL, key)
  return not found.err and cellsOf(found) or nil, true
end

-- wasReset reports whether a key was reset in this epoch.
local function wasReset(record)
  local kept = try('HMGET', record, 'e', 'x')
  return not kept.err and kept[1] == name and kept[2]
end

-- write writes counts, by field, to a record. It reports whether Redis lets it.
local function write(record, counts)
  local args = {'e', name}
  for field, n in pairs(counts) do
    args[#args + 1], args[#args + 2] = field, string.format('%.0f', n)
  end
  for i = 1, #args, 1000 do
    local done = try('HSET', record, unpack(args, i, math.min(i + 999, #args)))
    if type(done) == 'table' then return false end
  end
  return true
end

-- restore adds to a key what is missing of the known cells. It returns the counts of the cells that
-- it has added to, by field, or nil if it could not do anything.
local function restore(key, record, known, ttl)
  local restored, found = remembered(key, record)
  if not restored then return nil end
  -- A key of which nothing is known is only renewed.
  local adds, had, counts, now = #known > 0 and missing(known, restored) or {}, {}, {}, {}
  for _, c in ipairs(restored) do
    local field = nameOf(c[1], c[2])
    had[field] = (had[field] or 0) + c[3]
  end
  if found then
    for field, n in pairs(had) do counts[field] = n end
  end
  for _, c in ipairs(adds) do counts[c[1]] = (had[c[1]] or 0) + c[2] end
  if (found or next(counts)) and not write(record, counts) then return nil end
  local moments = {}
  for _, c in ipairs(adds) do
    local field, n = c[1], string.format('%.0f', c[2])
    if isPushed(field, n) then
      moments[#moments + 1], moments[#moments + 2] = field, n
    else
      local v = add(key, field, n, ttl)
      if type(v) ~= 'table' then
        now[field] = not isMoment(field) and tonumber(v) or nil
      else
        write(record, {[field] = had[field] or 0})
      end
    end
  end
  if #moments > 0 and not push(key, moments, 1, #moments, ttl) then
    for i = 1, #moments, 2 do write(record, {[moments[i]] = had[moments[i]] or 0}) end
  end
  return now
end

-- merge merges values into those of a key, see, unless it was reset in this epoch. It returns the
-- times afterwards, by field, or nil if it could not do anything.
local function merge(key, record, known, ttl)
  local adds = {}
  for i, c in ipairs(known) do adds[2 * i - 1], adds[2 * i] = c[4], c[5] end
  return not wasReset(record) and see(key, adds, ttl) or nil
end

-- live does with a key what its flags say once it is restored. size is how many fields it had, and
-- most how many it may have been given.
local function live(key, size, most, flags, ttl)
  local _, _, _, renew, _, ladder = flagsOf(flags, lists)
  if (renew or size == 0) and ttl ~= '0' then try('PEXPIRE', key, ttl) end
  local many = ladder and most > 0 and size + most > ladder.most
  if many and try(HLEN, key) > ladder.most then foldBy(key, ladder, ARGV[a + 10]) end
end

-- momentsOf returns the events of each moment of a key, by its field.
local function momentsOf(key)
  local flat, counts = try(HGETALL, key), {}
  for _, c in ipairs(flat.err and {} or cellsOf(flat)) do
    local field = c[2] == 1 and nameOf(c[1], 1)
    if field then counts[field] = (counts[field] or 0) + c[3] end
  end
  return counts
end

local out, o, p = {stored > seq and 3 or 0, version, quieted, epoch, last}, 6, a + 13
for i = 3, #KEYS, 2 do
  local key, record = KEYS[i], KEYS[i + 1]
  local flags, ttl, n = ARGV[p], ARGV[p + 1], tonumber(ARGV[p + 2])
  local known, size = {}, try(HLEN, key)
  for j = 1, n do
    local start, width = cell(ARGV[p + 1 + 2 * j])
    local field, text = ARGV[p + 1 + 2 * j], ARGV[p + 2 + 2 * j]
    known[j] = {start, width, tonumber(text), field, text}
  end
  local refused, now, whole = type(size) == 'table', nil, nil
  if fresh and not refused then
    now = (isValue(ARGV[p + 3]) and merge or restore)(key, record, known, ttl)
    whole = now
  elseif not refused then
    whole = not wasReset(record)
  end
  local moments = nil
  for j = 1, n do
    local field, count = ARGV[p + 1 + 2 * j], known[j][3]
    local v = now and now[field]
    if not v and not refused and isMoment(field) then
      moments = moments or momentsOf(key)
      v = moments[field]
    end
    v = v or not refused and try(HGET, key, field)
    -- The mark of events ahead is kept even if it is zero.
    if not v and now and count == 0 then v = add(key, field, '0', ttl) end
    v = tonumber(v) or refused and count or 0
    out[o], o = whole and math.max(v, count) or v, o + 1
  end
  if fresh and not refused then
    try('PEXPIRE', record, recordTTL)
    live(key, size, n, flags, ttl)
  end
  p = p + 3 + 2 * n
end
return out
