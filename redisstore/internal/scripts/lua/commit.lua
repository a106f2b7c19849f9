-- Changes of keys that were decided on what the sender had read of them. Keys that are changed
-- together are a group. A group is changed if all its keys are as they were read, and otherwise the
-- reply has them as they are.
--
-- A key that was ever changed here has its version in the field v: a text that no other change of
-- it has. The rounds of a two-tier counter leave it alone, so the state of the partition tells
-- apart how often others have changed it: by the version of the partition (v) without the changes
-- that were made here (d).
--
-- A sender that has lost a key to others again and again claims it, with a version that says until
-- when nobody else may change the key, and who may.
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
-- Reply: a MessagePack array: 1 if the sequence was known, or 0; for each partition 0, or 1 and its
-- epoch, quieted and changes by others, if they are not as given or have just begun; then for each
-- group 1 if it was changed; an error text if Redis refused, after 2, or 3 if a part of it was
-- changed; or 0 and for each key an array of its fields and values, an error text, or 0 if the
-- reply is full.
--
-- Nothing that may raise is called after the first write, which stores the sequence and which
-- groups are changed: the same call, sent again, finds them there.
local call, try, KEYS = redis.call, redis.pcall, KEYS
local args, a = cmsgpack.unpack(ARGV[3]), 0
local function num() a = a + 1; return args[a] end
-- How many fields of keys the reply may have.
local room = 20000

local sequence, known = ARGV[1], nil
local kept = call('GET', KEYS[1])
if kept then
  local last, list = string.match(kept, '^(%d+):?(.*)')
  if tonumber(last) >= tonumber(sequence) then known = last == sequence and list or '0' end
end

local version, claimant, longest = num(), num(), num()
local time, ends = call('TIME'), {}
local present = time[1] * 1000 + math.floor(time[2] / 1000)
local partitions = {}
for i = 1, num() do partitions[i] = {epoch = num(), quieted = num(), others = num()} end

-- A key is a list of these. A list takes less time than a table with names.
local KEY, PARTITION, VERSION, TTL, HASH, SETS, GONE, EXISTS, ERROR = 1, 2, 3, 4, 5, 6, 7, 8, 9
local NONE = {}
local function listOf() local l = num(); return l == 0 and NONE or l end

-- changes reports whether anything is written of a key. A claim is given up.
local function changes(c)
  return #c[SETS] > 0 or #c[GONE] > 0 or string.byte(c[VERSION]) == 33
end

local groups, k = {}, 1
for g = 1, num() do
  local group = {claims = num() == 1}
  for i = 1, num() do
    k = k + 1
    group[i] = {KEYS[k], partitions[num()], num(), num(), num(), listOf(), listOf(), false, false}
    if changes(group[i]) then group.changes = true end
  end
  groups[g] = group
end
for i, p in ipairs(partitions) do
  local state = call('HMGET', KEYS[k + i], 'e', 'v', 'q', 'd', 'k')
  p.name, p.list = KEYS[k + i], state[5]
  p.v, p.d = tonumber(state[2] or '0'), tonumber(state[4] or '0')
  local epoch, quieted, others = state[1] or '', state[3] or '', p.v - p.d
  p.same = epoch == p.epoch and quieted == p.quieted and others == p.others
  p.epoch, p.quieted, p.others = epoch, quieted, others
end

-- fits reports whether a key is as it was read.
local function fits(c)
  if not c[PARTITION].same then return false end
  if c[VERSION] == '-' then
    c[EXISTS] = try('EXISTS', c[KEY]) ~= 0 and ''
    return not c[EXISTS]
  end
  local held = try(HGET, c[KEY], 'v')
  if type(held) == 'table' then
    c[ERROR] = held.err
    return false
  end
  c[EXISTS] = held
  local till, by = string.match(held or '', '^!(%d+)!(.*)')
  if till and by ~= claimant and present < tonumber(till) then
    c[EXISTS] = false -- for us
    return false
  end
  return (held or '') == c[VERSION]
end

-- How many milliseconds a claim lasts.
local CLAIM = 200

-- claim claims a key that exists, unless others have.
local function claim(c)
  local text = string.format('!%.0f!%s', present + CLAIM, claimant)
  if c[EXISTS] then set(c[KEY], text, NONE, c[TTL]) end
end

local marks, writes = {}, false
for g, group in ipairs(groups) do
  if known then
    group.done = known == '' or string.sub(known, g, g)
  else
    group.done = '1'
    for _, c in ipairs(group) do
      if not fits(c) then
        group.done = '0'
        break
      end
    end
    writes = writes or group.done == '1' and group.changes
  end
  if group.done == true then group.done = '1' end
  marks[g] = group.done
end

-- store stores the sequence and which groups are changed.
local function store(by)
  local text = table.concat(marks)
  if not string.find(text, '[^1]') then text = '' else text = ':' .. text end
  return by('SET', KEYS[1], sequence .. text, 'PX', ARGV[2])
end

-- touch counts a change of a key's partition, once. It returns an error text if that is refused.
local function touch(c)
  local p = c[PARTITION]
  if p.touched then return end
  local done = try('HSET', p.name, 'v', string.format('%.0f', p.v + 1), 'd',
    string.format('%.0f', p.d + 1))
  if type(done) == 'table' then return done.err end
  p.touched = true
  if p.v == 0 then
    pcall(begin, p.name, 0, try('EXISTS', c[KEY]) == 1 and 0 or nil)
    p.epoch, p.same = try('HGET', p.name, 'e'), false
    if type(p.epoch) ~= 'string' then p.epoch = '' end
  end
end

-- delete deletes the fields of a key that are gone. It returns an error text if Redis refuses.
local function delete(c)
  for i = 1, #c[GONE], 1000 do
    local done = try(HDEL, c[KEY], unpack(c[GONE], i, math.min(i + 999, #c[GONE])))
    if type(done) == 'table' then return done.err end
  end
end

-- extend lets a key live for its time to live from now on.
local function extend(c)
  -- PEXPIRE takes longer because it has to be rewritten for replicas.
  ends[c[TTL]] = ends[c[TTL]] or string.format('%.0f', present + c[TTL])
  try('PEXPIREAT', c[KEY], ends[c[TTL]])
  c[PARTITION].fresh = (c[PARTITION].fresh or '') .. c[HASH]
end

-- change makes the changes of a group. It returns an error text if Redis refuses, and whether it
-- does so after something was written. Nothing is, if it does so because of a missing permission.
local function change(group)
  local err, changed = nil, {}
  for _, c in ipairs(group) do
    if changes(c) then
      changed[#changed + 1] = c
      err = err or touch(c)
    end
  end
  for i = 1, err and 0 or #changed do
    err = delete(changed[i])
    if err then return err, i > 1 end
  end
  for i = 1, err and 0 or #changed do
    local c = changed[i]
    local done = set(c[KEY], version, c[SETS], c[TTL])
    if type(done) == 'table' then return done.err, true end
    if c[HASH] ~= '' then extend(c) end
  end
  return err, false
end

if writes then
  store(call)
  local refused = false
  for g, group in ipairs(groups) do
    if group.done == '1' then
      local err, partly = change(group)
      if err then group.err, group.done, refused = err, partly and '3' or '2', true end
      marks[g] = group.done
    end
  end
  if refused then store(try) end
  for _, p in ipairs(partitions) do
    if p.fresh then list(p.name, p.list, p.fresh, longest) end
  end
end

local out, o = {}, 0
local function put(v) o = o + 1; out[o] = v end
put(known and 1 or 0)
for _, p in ipairs(partitions) do
  put(p.same and 0 or 1)
  if not p.same then put(p.epoch); put(p.quieted); put(string.format('%.0f', p.others)) end
end
for g, group in ipairs(groups) do
  if group.done > '1' then
    put(tonumber(group.done))
    put(group.err or 'ERR refused before')
  else
    put(tonumber(group.done))
    for i = 1, group.done == '0' and #group or 0 do
      if group[i][ERROR] then
        put(group[i][ERROR])
      elseif room <= 0 then
        put(0)
      else
        if group.claims then claim(group[i]) end
        local flat = try(HGETALL, group[i][KEY])
        room = room - #flat / 2 - 1
        put(flat.err or flat)
      end
    end
  end
end
return cmsgpack.pack(out)
