-- Changes of keys that were decided on what the sender had read of them. Keys that are changed
-- together are a group. A group is changed if all its keys are as they were read, and otherwise the
-- reply has them as they are.
--
-- A key that was ever changed here has its version in the field v: a text that no other change of
-- it has. The rounds of a two-tier counter leave it alone, so the state of the partition tells
-- apart how often others have changed it: by the version of the partition (v) without the changes
-- that were made here (d).
--
-- A sender that has lost the keys of a group to others again and again claims them, with versions
-- that say until when nobody else may change the keys, and who may. It claims all of them or none:
-- if two senders had each claimed a part of what both need, they would wait for each other.
--
-- KEYS: sequence of the sender, then the hashes of the keys, group by group, then the states of
-- their partitions.
--
-- ARGV: the sequence, its ttl, and a MessagePack array: the new version, the name of the sender in
-- claims, the longest ttl of a key, number of partitions, for each the epoch ('' if there is none),
-- quieted, and the changes by others; number of groups, and for each whether to claim its keys (0
-- or 1) and number of keys, then for each key: position of its partition, its version ('' if it has
-- none, '-' if the key must not exist), its ttl, its hash for the list of keys or '' if it lives
-- long enough, an array of fields and their values, and an array of fields to delete (each 0 if it
-- is empty).
--
-- Reply: 1 if the sequence was known, or 0; for each partition 0, or {epoch, quieted, changes by
-- others} if they are not as given or have just begun; a text with a digit for each group: 1 if it
-- was changed, 0 if not, 2 if Redis refused, 3 if it did so after a part was changed; then for each
-- group of 2 or 3 an error text, and for each key of a group of 0 {field, value, ...}, an error
-- text, or 0 if the reply is full.
--
-- Nothing that may raise is called after the first write, which stores the sequence and which
-- groups are changed: the same call, sent again, finds them there.
local call, try, KEYS = redis.call, redis.pcall, KEYS
local function digits(n) return string.format('%.0f', n) end
local args = cmsgpack.unpack(ARGV[3])
-- How many fields of keys the reply may have, and how many milliseconds a claim lasts.
local room, CLAIM = 20000, 200

local sequence, known = ARGV[1], nil
local kept = call('GET', KEYS[1])
if kept then
  local last, list = string.match(kept, '^(%d+):?(.*)')
  if tonumber(last) >= tonumber(sequence) then known = last == sequence and list or '0' end
end

local version, claimant, longest, count = args[1], args[2], args[3], args[4]
local time, ends = call('TIME'), {}
local present = time[1] * 1000 + math.floor(time[2] / 1000)

-- The partitions: the version and the changes of each, its list of keys, whether it is as given and
-- otherwise how it is, whether it was touched, and the hashes to list.
local a, states = 4, #KEYS - count
local versions, changes, lists, same, now, touched, fresh = {}, {}, {}, {}, {}, {}, {}
for i = 1, count do
  local state = call('HMGET', KEYS[states + i], 'e', 'v', 'q', 'd', 'k')
  local epoch, quieted = state[1] or '', state[3] or ''
  local others = (state[2] or 0) - (state[4] or 0)
  versions[i], changes[i], lists[i] = state[2] or 0, state[4] or 0, state[5]
  same[i] = epoch == args[a + 1] and quieted == args[a + 2] and others == args[a + 3]
  if not same[i] then now[i] = {epoch, quieted, digits(others)} end
  a = a + 3
end

-- What the arguments have of a key, after the position of the one before it.
local PARTITION, VERSION, TTL, HASH, SETS, GONE = 1, 2, 3, 4, 5, 6

-- claimed reports whether a version is the claim of somebody else.
local function claimed(held)
  local till, by = string.match(held, '^!(%d+)!(.*)')
  return till and by ~= claimant and present < tonumber(till)
end

-- fits reports whether KEYS[k], whose arguments follow position p, is as it was read.
local function fits(k, p)
  if not same[args[p + PARTITION]] then return false end
  local expected = args[p + VERSION]
  if expected == '-' then return try('EXISTS', KEYS[k]) == 0 end
  local held = try(HGET, KEYS[k], 'v') or ''
  return held == expected and (byte(held) ~= 33 or not claimed(held))
end

-- isChanged reports whether anything is written of a key. A claim is given up.
local function isChanged(p)
  return args[p + SETS] ~= 0 or args[p + GONE] ~= 0 or byte(args[p + VERSION]) == 33
end

-- The groups: the position of the arguments of each and before its first key, and what is done.
local starts, firsts, marks, writes = {}, {}, {}, false
local total, k = args[a + 1], 1
a = a + 1
for g = 1, total do
  local n = args[a + 2]
  starts[g], firsts[g] = a, k
  a = a + 2
  local done, wrote = '1', false
  if known then done = known == '' and '1' or string.match(known, '.', g) or '0' end
  for i = 1, n do
    local p = a + 6 * (i - 1)
    wrote = wrote or isChanged(p)
    if not known and done == '1' and not fits(k + i, p) then done = '0' end
  end
  writes = writes or not known and done == '1' and wrote
  marks[g], a, k = done, a + 6 * n, k + n
end

-- store stores the sequence and which groups are changed.
local function store(by)
  local text = table.concat(marks)
  if not string.find(text, '[^1]') then text = '' else text = ':' .. text end
  return by('SET', KEYS[1], sequence .. text, 'PX', ARGV[2])
end

-- touch counts a change of partition i, of KEYS[k], once. It returns an error text if that is
-- refused.
local function touch(i, k)
  if touched[i] then return end
  local name = KEYS[states + i]
  local done = try('HSET', name, 'v', digits(versions[i] + 1), 'd', digits(changes[i] + 1))
  if type(done) == 'table' then return done.err end
  touched[i] = true
  if tonumber(versions[i]) == 0 then
    pcall(begin, name, 0, try('EXISTS', KEYS[k]) == 1 and 0 or nil)
    local epoch = try('HGET', name, 'e')
    now[i] = {type(epoch) == 'string' and epoch or '', '', digits(versions[i] - changes[i])}
  end
end

-- delete deletes fields of a key. It returns an error text if Redis refuses.
local function delete(key, gone)
  for i = 1, #gone, 1000 do
    local done = try(HDEL, key, unpack(gone, i, math.min(i + 999, #gone)))
    if type(done) == 'table' then return done.err end
  end
end

-- extend lets a key live for its time to live from now on.
local function extend(key, p)
  local ttl, i = args[p + TTL], args[p + PARTITION]
  -- PEXPIRE takes longer because it has to be rewritten for replicas.
  ends[ttl] = ends[ttl] or digits(present + ttl)
  try('PEXPIREAT', key, ends[ttl])
  fresh[i] = (fresh[i] or '') .. args[p + HASH]
end

-- change makes the changes of a group. It returns an error text if Redis refuses, and whether it
-- does so after something was written. Nothing is, if it does so because of a missing permission.
local function change(g)
  local first, k = starts[g] + 2, firsts[g]
  local n = args[starts[g] + 2]
  for i = 1, n do
    local p = first + 6 * (i - 1)
    local err = isChanged(p) and touch(args[p + PARTITION], k + i)
    if err then return err, false end
  end
  for i = 1, n do
    local gone = args[first + 6 * (i - 1) + GONE]
    local err = gone ~= 0 and delete(KEYS[k + i], gone)
    if err then return err, i > 1 end
  end
  for i = 1, n do
    local p = first + 6 * (i - 1)
    if isChanged(p) then
      local sets = args[p + SETS]
      local done = set(KEYS[k + i], version, sets == 0 and {} or sets, args[p + TTL])
      if type(done) == 'table' then return done.err, true end
      if args[p + HASH] ~= '' then extend(KEYS[k + i], p) end
    end
  end
end

local errors = {}
if writes then
  store(call)
  local refused = false
  for g = 1, total do
    if marks[g] == '1' then
      local err, partly = change(g)
      if err then errors[g], marks[g], refused = err, partly and '3' or '2', true end
    end
  end
  if refused then store(try) end
  for i, hashes in pairs(fresh) do list(KEYS[states + i], lists[i], hashes, longest) end
end

local out = {known and 1 or 0}
local function put(v) out[#out + 1] = v end

-- claim claims those of n keys after KEYS[k] that have a version, unless somebody else has claimed
-- one of them.
local function claim(k, n)
  local mine = {}
  for i = k + 1, k + n do
    local held = try(HGET, KEYS[i], 'v') or ''
    if type(held) == 'table' or claimed(held) then return end
    if held ~= '' then mine[#mine + 1] = KEYS[i] end
  end
  for _, key in ipairs(mine) do set(key, '!' .. digits(present + CLAIM) .. '!' .. claimant, {}, 0) end
end

-- tell appends a key as it is now.
local function tell(key)
  local held = try(HGET, key, 'v')
  if type(held) == 'table' then return put(held.err) end
  if room <= 0 then return put(0) end
  local flat = try(HGETALL, key)
  room = room - #flat / 2 - 1
  put(flat.err or flat)
end

for i = 1, count do put(now[i] or 0) end
put(table.concat(marks))
for g = 1, total do
  if marks[g] > '1' then
    put(errors[g] or 'ERR refused before')
  elseif marks[g] == '0' then
    local k, n = firsts[g], args[starts[g] + 2]
    if args[starts[g] + 1] == 1 then claim(k, n) end
    for i = 1, n do tell(KEYS[k + i]) end
  end
end
return out
