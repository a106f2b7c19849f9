-- Restores what keys had before a loss. A record next to each key with counts has what was restored
-- in this epoch: the cells that were added and, if the epoch began with what a loss left behind, a
-- copy of what the key had when its record was made. The sender decides by the records which cells
-- are missing, and they are added if all records are as it knows them. Otherwise nothing is, and
-- the reply has the records. So the sum is right whoever restores first, however precisely they
-- know the events, and whatever was counted or has folded since. Values merge, and need no record.
--
-- KEYS: sequence of the writer, state of the partition, then for each key its hash and its record.
--
-- ARGV: sequence, nonce, acknowledged, ttl of the sequence and of the records, epoch, version,
-- quieted, last change or '', the change that this one is, the epoch after which a new one is
-- drawn, hashes for the list of keys, their ttl, then for each key: ttl, whether to set it even if
-- the key exists (0 or 1), number of values, and these (field, time); or, for a key without values,
-- the stamp of its record, which is how many fields were copied, a colon and the cells that were
-- added, and what to append to both.
--
-- Reply: {status, version, quieted, epoch, last change, an entry for each key ...}, with the same
-- status as for a round, or 5 if a record differs. Then the entries are the fields of the records,
-- and otherwise what the keys have: the fields, or when each of the values was seen; or an error
-- text.
local call, try = redis.call, redis.pcall
local seq, nonce, recordTTL = tonumber(ARGV[1]), ARGV[2], ARGV[4]
local stored, by, kept = progress(KEYS[1])
local state = call('HMGET', KEYS[2], 'e', 'v', 'q', 'l', 's', 'k')
local epoch, version = tonumber(state[1] or '0'), tonumber(state[2] or '0')
local quieted, last, left = tonumber(state[3] or '0'), state[4] or '', state[5] == '1'
if stored < tonumber(ARGV[3]) or epoch ~= tonumber(ARGV[5]) or
  version < tonumber(ARGV[6]) or quieted < tonumber(ARGV[7]) or lacks(ARGV[8], last) then
  return {1, version, quieted, epoch, last}
end
if stored == seq and by ~= nonce then return {2, version, quieted, epoch, last} end
local fresh, after = seq > stored, tonumber(ARGV[10])
if fresh and epoch <= after then
  -- The epoch stays even if nothing is restored: whoever knows the lost one starts over.
  left = epoch ~= 0 or survived(3, #KEYS, 2)
  epoch, version = begin(KEYS[2], after, left and version or nil)
end
local name = string.format('%.0f', epoch)

local keys, p = {}, 13
for k = 3, #KEYS, 2 do
  local n = tonumber(ARGV[p + 2])
  keys[#keys + 1] = {key = KEYS[k], record = KEYS[k + 1], ttl = ARGV[p], renew = ARGV[p + 1] == '1',
    values = n, at = p + 3}
  p = p + 3 + 2 * math.max(1, n)
end

-- make makes the record of a key. It returns its fields, or an error.
local function make(key, record)
  local sets, found = {}, left and try(HGETALL, key) or {}
  if found.err then return found end
  for i = 1, #found, 2 do sets[i], sets[i + 1] = 'k' .. found[i], found[i + 1] end
  sets[#sets + 1], sets[#sets + 2] = 'e', name
  for i = 1, #sets, 2000 do -- Lua can't unpack more than about 8,000 at a time
    local done = try('HSET', record, unpack(sets, i, math.min(i + 1999, #sets)))
    if type(done) == 'table' then
      try('DEL', record)
      return done
    end
  end
  try('PEXPIRE', record, recordTTL)
  return sets
end

-- open returns the record of a key in this epoch: its fields, its cells, its stamp, and whether the
-- key was reset; or an error.
local function open(key, record)
  local flat, is = try('HGETALL', record), {}
  if flat.err then return flat end
  for i = 1, #flat, 2 do is[flat[i]] = flat[i + 1] end
  if is.e ~= name then
    if #flat > 0 then try('DEL', record) end
    flat, is = make(key, record), {}
    if flat.err then return flat end
  end
  local cells, copied = is.d or '', 0
  for i = 1, #flat, 2 do
    if string.sub(flat[i], 1, 1) == 'k' then copied = copied + 1 end
  end
  return {fields = flat, cells = cells, stamp = copied .. ':' .. cells, reset = is.x}
end

local out, differs = {5, version, quieted, epoch, last}, false
for _, k in ipairs(keys) do
  k.open = fresh and k.values == 0 and open(k.key, k.record) or {}
  out[#out + 1] = k.open.fields or {}
  differs = differs or k.open.stamp and not k.open.reset and k.open.stamp ~= ARGV[k.at]
end
if differs then return out end

-- If Redis refuses to write, it does so here, before anything is restored.
local mark = ARGV[1] .. '.' .. nonce
if fresh then
  version, last = version + 1, ARGV[9]
  call('HSET', KEYS[2], 'v', version, 'l', last)
  list(KEYS[2], state[6], ARGV[11], ARGV[12])
  call('SET', KEYS[1], mark, 'PX', recordTTL)
end

-- restore appends the missing cells to the log of a key and to its record. It returns an error text
-- if it can't.
local function restore(k)
  local more, was = ARGV[k.at + 1], k.open
  if was.err or was.reset or more == '' then return was.err end
  local done = try('HSET', k.record, 'd', was.cells .. more)
  if type(done) == 'table' then return done.err end
  done = logTo(k.key, k.ttl, more)
  if type(done) ~= 'table' then return nil end
  try('HSET', k.record, 'd', was.cells)
  return done.err
end

-- merge merges values into those of a key, see, unless it was reset in this epoch. It returns an
-- error text if it can't.
local function merge(k)
  local is, adds = try('HMGET', k.record, 'e', 'x'), {}
  if is.err or is[1] == name and is[2] then return is.err end
  for i = 1, 2 * k.values do adds[i] = ARGV[k.at + i - 1] end
  local times, err = see(k.key, adds, k.ttl)
  return not times and err or nil
end

-- content returns what a key has, or an error text.
local function content(k)
  if k.values == 0 then
    local flat = try(HGETALL, k.key)
    return flat.err or flat
  end
  local times = {}
  for i = 1, k.values do
    times[i] = tonumber(try(HGET, k.key, ARGV[k.at + 2 * i - 2]) or 0) or 0
  end
  return times
end

local refused, positions = stored == seq and refusals(kept) or {}, {}
out = {stored > seq and 3 or 0, version, quieted, epoch, last}
for i, k in ipairs(keys) do
  local err = refused[i - 1] and 'ERR it was refused when this part was restored'
  if fresh then
    local made = try('EXISTS', k.key) == 0
    err = (k.values > 0 and merge or restore)(k)
    if err then positions[#positions + 1] = i - 1 end
    if not err and (k.renew or made) and k.ttl ~= '0' then try('PEXPIRE', k.key, k.ttl) end
    try('PEXPIRE', k.record, recordTTL)
  end
  out[#out + 1] = err or content(k)
end
if #positions > 0 then
  try('SET', KEYS[1], mark .. ':' .. table.concat(positions, ','), 'PX', recordTTL)
end
return out
