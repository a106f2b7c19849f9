-- Operations of pure-Redis mode, carried out one after the other.
--
-- KEYS: sequence of the sender, then the hash of every check, then the partitions' state hashes,
-- where the versions are.
--
-- ARGV: the sequence, its ttl, and a MessagePack array of numbers, which costs much less than as
-- many arguments: the present, the most steps, number of ladders, the ladders (number of levels,
-- then width, reach, keep, the most that anybody keeps, ttl of a field and number in fields for
-- each), number of plans, the plans (ladder, ttl, number of limits, then window and max for each),
-- number of operations, the operations (acquire or add (1 or 0), mode, time, number of checks, then
-- position of the version, plan and n for each). Then the hashes for the list of keys, one for each
-- check.
--
-- A negative n in an acquire makes the check the ban of the last check before it without one: it
-- refuses until the end that its counts state, whatever the mode. If that is over, and one of some
-- limits of the other check refuses, a ban as long as its window is counted once, unless the mode is
-- 3. Which limits is in n, see watched.
--
-- Modes: 0 to count what is allowed, 1 to count what is refused as well, 2 for an add that takes
-- back from the newest buckets that hold something, 3 to count nothing.
--
-- Reply: a MessagePack array: whether the sequence was known, the steps, then for each operation
-- either 2 and an error, or whether it is allowed (1 or 0) and its checks. The check of an acquire
-- is count, bucket width and retry after (or 0 or -1) for each limit. That of an add is the number
-- of buckets, and the field and count of each. The bucket width of a ban that has started is
-- negative.
--
-- A call takes a limited number of steps, each about as long as it takes to look at a bucket. The
-- operations for which there is no room are left for the next call, with nothing done: each is a 3
-- in the reply, or a 4 if it is the first one and has several keys, which then have to be decided
-- one after the other.
--
-- After the first write nothing that may raise is called. If a key refuses, its operation is taken
-- back and fails alone.
local call, try, floor, format = redis.call, redis.pcall, math.floor, string.format
local KEYS = KEYS
local last, verdicts = 0, ''
local kept = call('GET', KEYS[1])
if kept then
  local colon = string.find(kept, ':', 1, true)
  last, verdicts = tonumber(string.sub(kept, 1, colon - 1)), string.sub(kept, colon + 1)
end
local repeated = tonumber(ARGV[1]) <= last

-- Nearly always the same few fields and small numbers are read and written, so each is converted
-- only once.
local fields = setmetatable({}, {__index = function(t, s)
  local f = tonumber(s) or -1
  t[s] = f
  return f
end})
-- The largest Lua number that fits an integer of Redis, and the number up to which every integer is
-- exact in Lua, with room for a batch.
local MOST, EXACT = 9223372036854774784, 1e15
local large = false -- whether a count beyond EXACT was found
local counts = setmetatable({}, {__index = function(t, s)
  -- A value that HINCRBY would refuse is not a count.
  local digits = string.match(s, '^%-?([1-9]%d*)$')
  local fits = digits and
    (#digits < 19 or #digits == 19 and digits <= '9223372036854775807')
  local n = s == '0' and 0 or fits and tonumber(s)
  if n then n = math.max(-MOST, math.min(MOST, n)) end
  large = large or n and math.abs(n) > EXACT
  t[s] = n
  return n
end})
local digits = setmetatable({}, {__index = function(t, n)
  local s = format('%.0f', n)
  t[n] = s
  return s
end})

local args = cmsgpack.unpack(ARGV[3])
local a = 0
local function num() a = a + 1; return args[a] end

local now, most = num(), num()

-- The steps so far, and those that reading a bucket takes.
local steps, READ = 0, 12

local ladders, plans = {}, {}
for i = 1, num() do
  local l = {levels = num(), most = 0, width = {}, span = {}, keep = {}, kept = {}, ttl = {},
    id = {}, level = {}, full = {}, moved = false}
  for j = 1, l.levels do
    l.width[j], l.span[j], l.keep[j], l.kept[j] = num(), num(), num(), num()
    l.ttl[j], l.id[j] = digits[num()], num()
    l.most = l.most + l.kept[j] + 1
    -- Whether the level reaches as far as its span. It keeps as many buckets more as 2 s take.
    l.full[j] = l.span[j] >= (l.keep[j] - math.ceil(2000 / l.width[j]) - 1) * l.width[j]
    l.level[l.id[j]], l.moved = j - 1, l.moved or l.id[j] ~= j - 1
  end
  ladders[i] = l
end

-- Wherever hashes are read here, a level has the number of its position in the ladder. placed
-- returns a field with that number, given the field in Redis, or -1 if the ladder has no such
-- level; nameOf is its inverse.
local function placed(f, ladder)
  if not ladder.moved or f < 0 then return f end
  local level = ladder.level[f % 10]
  return level and f - f % 10 + level or -1
end

local function nameOf(f, ladder)
  if not ladder.moved or f < 0 then return digits[f] end
  return digits[f - f % 10 + ladder.id[f % 10 + 1]]
end

-- finest returns the first level that covers a window ending at ts and, where buckets go by age,
-- still has all of it: 0 if none.
local function finest(ladder, window, ts)
  for level = 1, ladder.levels do
    local width = ladder.width[level]
    if ladder.span[level] >= window and
      not (AGING and
        floor((ts - window + 1) / width) < floor(now / width) - ladder.keep[level]) then
      return level
    end
  end
  return 0
end

for i = 1, num() do
  local p = {ladder = ladders[num()], ttl = num(), limits = num(), window = {}, max = {}, level = {},
    stamp = 0, oldest = {}, present = {}, gone = {}, name = {}}
  for j = 1, p.limits do
    p.window[j], p.max[j] = num(), num()
    p.level[j] = finest(p.ladder, p.window[j], now)
  end
  steps = steps + 10 + 5 * p.limits
  plans[i] = p
end

-- A hash is a flat list of fields and counts, as numbers: making a table for each level would take
-- longer than doing without. A field that is not a bucket is -1, which belongs to no level.
local hashes = {}

-- load reads a hash once. It also returns whether the hash had been read before.
local function load(key, ladder)
  local h = hashes[key]
  if h then return h, true end
  h = try(HGETALL, key)
  if h.err then return nil, false, h.err end
  steps = steps + READ * #h / 2
  local many = #h > 40 -- then it shares few fields with others: a lookup takes longer
  for i = 1, #h, 2 do
    local f, n = h[i], counts[h[i + 1]]
    if many then f = tonumber(f) or -1 else f = fields[f] end
    f = placed(f, ladder)
    if not n and f >= 0 and f < 1e17 then
      h.alien = h.alien or {}
      h.alien[f % 10 + 1] = true
    end
    if not n then
      h.odd = true
      f, n = -1, 0
    elseif n < 0 then -- more was taken back than is there: it counts as zero
      h.odd = true
      n = 0
    end
    h[i], h[i + 1] = f, n
  end
  for i = 2, large and #h or 0, 2 do
    if math.abs(h[i]) > EXACT then h.odd = true end -- Redis has to do the addition
  end
  hashes[key] = h
  return h, false
end

-- index sorts the buckets of a hash by level, once. It returns for each level its fields, their
-- number n, the newest and the oldest; h.at has the position of each field in the hash.
local function index(h, ladder)
  if h.index then return h.index end
  local list, at = {}, {}
  for l = 1, ladder.levels do list[l] = {n = 0, newest = l - 11, oldest = math.huge} end
  for i = 1, #h, 2 do
    local f = h[i]
    local x = list[f % 10 + 1]
    if x then
      local n = x.n + 1
      x.n, x[n], at[f] = n, f, i
      if f > x.newest then x.newest = f end
      if f < x.oldest then x.oldest = f end
    end
  end
  steps = steps + 2 * #h
  h.index, h.at = list, at
  return list
end

-- sorted returns a level of the index with its fields in order, and sums: how much is in the first
-- i of them. Sums that Lua can't hold exactly are in two parts, of which lows has the lower one, so
-- that the difference of two is exact if it is below 2^53, and not below that if it is not.
local SPLIT = 4294967296
local function sorted(h, ladder, level)
  local x = index(h, ladder)[level]
  if x.sums then return x end
  table.sort(x)
  local at, sums, lows, s = h.at, {[0] = 0}, {[0] = 0}, 0
  for i = 1, x.n do
    s = s + h[at[x[i]] + 1]
    sums[i] = s
  end
  if s >= 2 ^ 53 then
    for i = 1, x.n do
      local n = h[at[x[i]] + 1]
      local high = floor(n / SPLIT)
      sums[i], lows[i] = sums[i - 1] + high, lows[i - 1] + n - high * SPLIT
    end
    x.lows = lows
  end
  steps = steps + 5 * x.n
  x.sums = sums
  return x
end

-- upTo returns how many buckets of a sorted level have no higher field than f.
local function upTo(x, f)
  local lo, hi = 0, x.n
  while lo < hi do
    local mid = floor((lo + hi + 1) / 2)
    if x[mid] <= f then lo = mid else hi = mid - 1 end
  end
  return lo
end

-- between sums the buckets of a sorted level after the first i, up to number j.
local function between(x, i, j)
  local s = x.sums[j] - x.sums[i]
  if x.lows then s = s * SPLIT + (x.lows[j] - x.lows[i]) end
  return s
end

-- raise keeps the index of a hash as it is when n is counted in the newest bucket of a level, which
-- is at position i.
local function raise(h, level, f, i, n)
  local x = h.index[level]
  if x.newest ~= f then
    x.n, x.newest, x.oldest = x.n + 1, f, math.min(x.oldest, f)
    x[x.n], h.at[f] = f, i
    if x.sums then x.sums[x.n] = x.sums[x.n - 1] end
    if x.lows then x.lows[x.n] = x.lows[x.n - 1] end
  end
  local part = x.lows or x.sums
  if part then part[x.n] = part[x.n] + n end
end

-- The plan of the current check, and what is in it: the fields of the present buckets, of the
-- oldest bucket that each limit sums, and of the oldest that are kept along with the present ones.
-- The plan's stamp changes with them.
local current, ladder, levels, limits, window, max, level, oldest, present, gone
local function follow(plan, ts)
  if plan ~= current then
    current, ladder, limits = plan, plan.ladder, plan.limits
    window, max, level = plan.window, plan.max, plan.level
    oldest, present, gone = plan.oldest, plan.present, plan.gone
    levels = ladder.levels
  end
  if plan.ts == ts then return end
  plan.ts = ts
  for l = 1, levels do
    local f = floor(ts / ladder.width[l]) * 10 + l - 1
    if f ~= present[l] then
      present[l], plan.name[l], plan.stamp = f, nameOf(f, ladder), plan.stamp + 1
      gone[l] = f - 10 * ladder.kept[l]
    end
  end
  for j = 1, limits do
    if AGING then level[j] = finest(ladder, window[j], ts) end
    local f = level[j] > 0 and
      floor((ts - window[j] + 1) / ladder.width[level[j]]) * 10 + level[j] - 1 or -1
    if f ~= oldest[j] then
      oldest[j], plan.stamp = f, plan.stamp + 1
    end
  end
end

-- look finds the positions of the present buckets (0 for none) in a hash and sums the window of
-- every limit, oldest bucket included. If there is a bucket newer than ts, newest is false and the
-- sums do not decide. stale says whether some buckets have fallen behind the present ones. If a
-- hash is asked for again, it is indexed and the results are kept with it: busy keys have many
-- buckets and come often.
local firstAt, firstSums = {}, {}
local at, sums, newest, stale, seen, memo

local function lookUp(h)
  local list = index(h, ladder)
  for l = 1, levels do
    local i = h.at[present[l]]
    at[l] = i and i + 1 or 0
    newest = newest and list[l].newest <= present[l]
    stale = stale or list[l].oldest < gone[l]
  end
  for j = 1, limits do
    local x = level[j] > 0 and sorted(h, ladder, level[j])
    if x then sums[j] = between(x, upTo(x, oldest[j] - 1), x.n) end
  end
end

local function goThrough(h)
  for i = 1, #h, 2 do
    local f = h[i]
    local l = f % 10 + 1
    local p = present[l]
    if p then
      if f == p then at[l] = i + 1
      elseif f > p then newest = false
      elseif f < gone[l] then stale = true end
      for j = 1, limits do
        if level[j] == l and f >= oldest[j] then sums[j] = sums[j] + h[i + 1] end
      end
    end
  end
  steps = steps + #h
end

local function look(h, plan, ts, again)
  follow(plan, ts)
  seen, memo = h, h.memo
  if memo then
    at, sums = memo.at, memo.sums
    if memo.plan == plan and memo.stamp == plan.stamp then
      newest, stale = memo.newest, memo.stale
      return
    end
  elseif again then
    at, sums = {}, {}
    memo = {at = at, sums = sums}
    h.memo = memo
  else
    at, sums = firstAt, firstSums
  end
  for l = 1, levels do at[l] = 0 end
  for j = 1, limits do sums[j] = 0 end
  newest, stale = true, false
  if memo or limits > 4 then lookUp(h) else goThrough(h) end
  if memo then
    memo.plan, memo.stamp, memo.newest, memo.stale = plan, plan.stamp, newest, stale
  end
end

-- head returns the newest bucket of a level, or -1 if there is none.
local function head(h, ladder, level)
  return (index(h, ladder)[level].newest - level + 1) / 10
end

-- lost reports whether a coarser level has a bucket that begins after the newest of this level, so
-- that this level has lost buckets.
local function lost(h, ladder, level, newest)
  for l = level + 1, ladder.levels do
    if head(h, ladder, l) * ladder.width[l] >= (newest + 1) * ladder.width[level] then
      return true
    end
  end
end

-- fullest returns the largest sum of any window of this length that contains ts, given the buckets
-- from lo to hi of the one that ends there.
local function fullest(x, level, width, window, ts, lo, hi)
  local before, at = upTo(x, lo * 10 + level - 2), upTo(x, hi * 10 + level - 1)
  local p, back = between(x, before, at), floor((1 - window) / width) * 10
  local last = upTo(x, floor((ts + window - 1) / width) * 10 + level - 1)
  for i = at + 1, last do
    local first = x[i] + back
    while x[before + 1] < first do before = before + 1 end
    local s = between(x, before, i)
    if s > p then p = s end
  end
  steps = steps + 2 * math.max(0, last - at)
  return p
end

-- keepsFrom reports whether a level certainly has everything that was counted in its buckets from
-- one on.
local function keepsFrom(h, ladder, level, lo)
  local newest = head(h, ladder, level)
  local last = AGING and math.max(newest, floor(now / ladder.width[level])) or newest
  return lo >= last - ladder.keep[level] and
    (AGING or newest >= lo or not lost(h, ladder, level, newest))
end

-- has reports whether a level certainly has everything that was counted in one of its buckets.
local function has(h, ladder, level, idx)
  return keepsFrom(h, ladder, level, idx) and
    (ladder.full[level] or now - idx * ladder.width[level] < ladder.span[level])
end

-- peak returns the largest sum, oldest bucket included, of any window of this length that contains
-- ts, or nil if no level has all of it.
local function peak(h, ladder, window, ts)
  for level = 1, ladder.levels do
    local width = ladder.width[level]
    local lo = floor((ts - window + 1) / width)
    if ladder.span[level] >= window and keepsFrom(h, ladder, level, lo) then
      local hi = floor(ts / width)
      local x = sorted(h, ladder, level)
      return fullest(x, level, width, window, ts, lo, hi), level, lo, hi
    end
  end
end

-- How many buckets after a moment room looks at one by one, as in leaparray.
local FAR = 512

-- room returns how long it takes until no window of this length that contains the moment has more
-- than most, given the buckets from lo to hi of the window that ends at ts. If windows are too full
-- for more than FAR buckets, it may be longer, because all newer buckets count as one window.
local function room(x, level, width, window, ts, lo, hi, most)
  local gone, to = upTo(x, lo * 10 + level - 2), upTo(x, hi * 10 + level - 1)
  local at, before, back = ts, gone, floor((1 - window) / width) * 10
  local far = (hi + FAR) * 10 + level - 1
  local full = between(x, gone, to) > most and to -- end of the last overfull window
  while true do
    local last, seen = floor((at + window - 1) / width) * 10 + level - 1, to
    while to < x.n and x[to + 1] <= math.min(last, far) do
      to = to + 1
      local first = x[to] + back
      while x[before + 1] < first do before = before + 1 end
      if between(x, before, to) > most then full = to end
    end
    steps = steps + 2 * (to - seen) + 5
    if not full and last > far and between(x, gone, x.n) > most then full = x.n end
    if not full then return math.max(1, at - ts) end
    local enough = full
    while gone < enough do
      local mid = floor((gone + enough) / 2)
      if between(x, mid, full) > most then gone = mid + 1 else enough = mid end
      steps = steps + 1
    end
    at, full = math.max(at, ((x[gone] - level + 1) / 10 + 1) * width + window - 1), nil
  end
end

-- The position in KEYS of the hash that is being counted, and of its partition's state; and, by
-- partition, hashes for the list of keys and their longest ttl.
local position, state, fresh, longest = 0, 0, {}, 0

-- extend keeps the key alive until no window can reach it any more.
local function extend(key, plan)
  fresh[state] = (fresh[state] or '') .. string.sub(ARGV[4], 4 * position - 7, 4 * position - 4)
  longest = math.max(longest, plan.ttl)
  if plan.ends == nil then
    local t = try('TIME')
    plan.ends = not t.err and digits[t[1] * 1000 + floor(t[2] / 1000) + plan.ttl]
  end
  -- PEXPIRE takes longer because it has to be rewritten for replicas.
  if not plan.ends or type(try('PEXPIREAT', key, plan.ends)) == 'table' then
    try('PEXPIRE', key, digits[plan.ttl])
  end
end

-- delete removes fields from a hash.
local function delete(key, names)
  steps = steps + 5 * #names
  -- Lua can't unpack more than about 8,000 at a time.
  for i = 1, #names, 1000 do try(HDEL, key, unpack(names, i, math.min(i + 999, #names))) end
end

-- prune deletes the buckets of a hash that have fallen behind the present ones of the current plan.
local function prune(key, h)
  local names, kept = {}, 0
  for i = 1, #h, 2 do
    local f = h[i]
    local first = gone[f % 10 + 1]
    if first and f < first then
      names[#names + 1] = nameOf(f, ladder)
    else
      h[kept + 1], h[kept + 2] = f, h[i + 1]
      kept = kept + 2
    end
  end
  for i = #h, kept + 1, -1 do h[i] = nil end
  h.memo, h.index, seen = nil, nil, nil
  delete(key, names)
end

-- purge deletes the buckets that have fallen behind the newest, in a hash that was not read.
local function purge(key, ladder)
  local flat, names, newest = try(HGETALL, key), {}, {}
  if flat.err then return end
  steps = steps + READ * #flat / 2
  for pass = 1, 2 do
    for i = 1, #flat, 2 do
      local f = placed(fields[flat[i]], ladder)
      local level = f % 10 + 1
      if ladder.width[level] then
        local idx = (f - level + 1) / 10
        if pass == 1 then
          newest[level] = math.max(newest[level] or 0, idx)
        elseif idx < newest[level] - ladder.kept[level] then
          names[#names + 1] = flat[i]
        end
      end
    end
  end
  delete(key, names)
end

-- What the current operation has counted, in case it has to be taken back: key, field, ttl of the
-- field and n for each bucket.
local done, several = {}, false
local function note(key, field, ttl, n)
  local i = #done
  done[i + 1], done[i + 2], done[i + 3], done[i + 4] = key, field, ttl, n
end

local function takeBack()
  for i = 1, #done, 4 do
    add(done[i], done[i + 1], digits[-done[i + 3]], done[i + 2])
    hashes[done[i]] = nil
  end
end

-- held returns how much of n can be taken back from a bucket, or nil and an error text.
local function held(key, field, n)
  local v = try(HGET, key, field)
  if type(v) == 'table' then return nil, v.err end
  return math.min(n, math.max(0, tonumber(v or 0) or 0))
end

-- size returns the number of fields of a hash.
local function size(key)
  local n = try(HLEN, key)
  return type(n) == 'number' and n or 0
end

-- each adds n to the bucket of every level, one by one, or what parts has for the level. It returns
-- an error text if the key refuses.
local function each(key, h, plan, n, ts, parts)
  -- first and last: whether the first and the last bucket are new.
  local ladder, first, last = plan.ladder, false, false
  if h then h.memo = nil end
  steps = steps + 10 * ladder.levels
  for level = 1, ladder.levels do
    local idx = floor(ts / ladder.width[level])
    local d, f, ttl = parts and parts[level] or n, idx * 10 + level - 1, ladder.ttl[level]
    local field = nameOf(f, ladder)
    if not h or idx >= head(h, ladder, level) - ladder.keep[level] then
      local v = add(key, field, digits[d], ttl)
      if type(v) == 'table' then return v.err end
      note(key, field, ttl, d)
      v = tonumber(v)
      if h then
        local i = h.at[f] or #h + 1
        h[i], h[i + 1] = f, math.max(0, v)
      end
      if v == d and level == 1 then first = true end
      if v == d and level == ladder.levels then last = true end
    end
  end
  if h then h.index = nil end
  if last then extend(key, plan) end
  if not h and (last or first and size(key) > ladder.most) then purge(key, ladder) end
end

-- take takes n back from the bucket at position i of a hash. It returns an error text if the key
-- refuses.
local function take(key, h, ladder, i, n)
  local l, field = h[i] % 10 + 1, nameOf(h[i], ladder)
  local v = add(key, field, digits[-n], ladder.ttl[l])
  if type(v) == 'table' then return v.err end
  note(key, field, ladder.ttl[l], -n)
  h[i + 1] = math.max(0, tonumber(v))
  steps = steps + 10
end

-- takeAt takes n back from the buckets of one moment, but no more than the finest level that has
-- all of that time holds there: every level loses the same events. It returns an error text if the
-- key refuses.
local function takeAt(key, plan, n, ts)
  local ladder, places, amount, bounded, h, _, err = plan.ladder, {}, {}, false,
    load(key, plan.ladder)
  if not h then return err end
  h.memo = nil
  index(h, ladder)
  for l = 1, ladder.levels do
    local idx = floor(ts / ladder.width[l])
    places[l], amount[l] = h.at[idx * 10 + l - 1], 0
    if places[l] then
      amount[l], err = held(key, nameOf(h[places[l]], ladder), n)
      if err then return err end
    end
    if not bounded and has(h, ladder, l, idx) then
      n, bounded = math.min(n, amount[l]), true
    end
  end
  for l = 1, ladder.levels do
    local d = math.min(n, amount[l])
    if d > 0 then
      err = take(key, h, ladder, places[l], d)
      if err then return err end
    end
  end
  h.index = nil
end

-- recent returns the positions of the buckets of a hash that hold something and that a window may
-- still see at ts, newest first.
local function recent(h, ladder, ts)
  local oldest, found = {}, {}
  for l = 1, ladder.levels do
    oldest[l] = math.max(head(h, ladder, l), floor(ts / ladder.width[l])) - ladder.keep[l]
  end
  for i = 1, #h, 2 do
    local l = h[i] % 10 + 1
    if oldest[l] and h[i + 1] > 0 and (h[i] - l + 1) / 10 >= oldest[l] then
      found[#found + 1] = i
    end
  end
  table.sort(found, function(i, j) return h[i] > h[j] end)
  steps = steps + 10 * #found
  return found
end

-- takeNewest takes n back from the newest buckets of every level that hold something. It returns an
-- error text if the key refuses.
local function takeNewest(key, plan, n, ts)
  local h, _, err = load(key, plan.ladder)
  if not h then return err end
  local ladder, left = plan.ladder, {}
  h.memo = nil
  for l = 1, ladder.levels do left[l] = n end
  for _, i in ipairs(recent(h, ladder, ts)) do
    local l, d = h[i] % 10 + 1, 0
    if left[l] > 0 then
      d, err = held(key, nameOf(h[i], ladder), left[l])
      if err then return err end
    end
    if d > 0 then
      err = take(key, h, ladder, i, d)
      if err then return err end
      left[l] = left[l] - d
    end
  end
  h.index = nil
end

-- set adds n to the present bucket of every level in one command. The whole hash must be known.
local written = {}
local function set(key, h, plan, n)
  local v
  for l = 1, levels do
    local i = at[l]
    if i == 0 then
      i, v = #h + 2, n
      h[i - 1], at[l] = present[l], i
    else
      v = h[i] + n
    end
    h[i] = v
    if h.index then raise(h, l, present[l], i - 1, n) end
    written[2 * l - 1], written[2 * l] = plan.name[l], digits[v]
  end
  if memo then
    for j = 1, limits do sums[j] = sums[j] + n end
  end
  local result = try(HSET, key, unpack(written, 1, 2 * levels))
  if type(result) == 'table' then
    hashes[key] = nil
    return result.err
  end
  if v == n then extend(key, plan) end
  for l = 1, several and levels or 0 do note(key, plan.name[l], ladder.ttl[l], n) end
end

-- count adds n to the bucket of every level: in one command if the contents of the hash are known
-- and no bucket is newer. With parts it adds these in place of n.
local function count(key, plan, n, ts, parts)
  if n < 0 then return takeAt(key, plan, -n, ts) end
  local h = hashes[key]
  if h and seen ~= h then look(h, plan, ts, true) end
  seen = nil
  local old = h and newest and stale -- the present buckets say which have fallen behind
  local refused
  if parts or not HSET or not h or h.odd or not newest then
    refused = each(key, h, plan, n, ts, parts)
  else
    refused = set(key, h, plan, n)
  end
  if old and not refused then prune(key, h) end
  return refused
end

-- markAhead makes the bucket that follows an event ahead of the present the newest of the finest
-- level, as leaparray.Ladder.Beyond says.
local function markAhead(key, plan, ts)
  local h, ladder = hashes[key], plan.ladder
  steps = steps + 10
  local f = (floor(ts / ladder.width[1]) + 1) * 10
  if type(add(key, nameOf(f, ladder), '0', ladder.ttl[1])) == 'table' or not h then return end
  index(h, ladder)
  if h.at[f] then return end
  h[#h + 1], h[#h + 2] = f, 0
  h.memo, h.index, seen = nil, nil, nil
end

local touched, wrote = {}, false

-- touch counts the change of the partition of KEYS[k], a hash, once per call of the script. It
-- returns an error text if that is refused.
local function touch(version, k)
  if touched[version] then return end
  local v = try('HINCRBY', KEYS[version], 'v', '1')
  if type(v) == 'table' then return v.err end
  touched[version], wrote = true, true
  if v == 1 then pcall(begin, KEYS[version], 0, survived(k, k, 1) and 0 or nil) end
end

local out, o = {repeated and 1 or 0, 0}, 2

-- spoiled returns an error text if someone else has put something into a bucket of a hash.
local function spoiled(h, ladder)
  for level in pairs(h.alien or {}) do
    if level <= ladder.levels then return 'ERR a bucket holds what is no count' end
  end
end

-- The count of a ban states when it ends, see syncer/banend.go: the factor of the end in the bucket
-- of each level.
local ENDS = {256, 4096}

-- ownLevel returns the level whose bucket states the end of a ban of this length.
local function ownLevel(ladder, length)
  return length <= ladder.span[1] and 1 or 2
end

-- forbids looks for a ban that holds at present. It returns whether there is none, or nil and an
-- error text.
local function forbids(h, plan)
  local err = spoiled(h, plan.ladder)
  if err then return nil, err end
  local ladder, length, ends = plan.ladder, plan.window[1], now
  local own = ownLevel(ladder, length)
  for i = 1, #h, 2 do
    local l = h[i] % 10 + 1
    local width, starts = ladder.width[l], h[i + 1] % 16
    if width and starts > 0 then
      local idx, buckets = (h[i] - l + 1) / 10, floor(h[i + 1] / ENDS[l])
      if buckets > 0 then
        buckets = math.min(ladder.span[l] / width + 1, math.ceil(buckets / starts))
        ends = math.max(ends, (idx + buckets) * width - 1)
      elseif l == own then
        ends = math.max(ends, (idx + 1) * width + length - 1)
      end
    end
  end
  steps = steps + 2 * #h
  out[o + 1], out[o + 2], out[o + 3] = ends > now and 1 or 0, ladder.width[own], ends - now
  o = o + 3
  return ends == now
end

-- judge compares all limits of a check with the counts and n. It returns whether they hold, or nil
-- and an error text.
local function judge(acquire, h, plan, ts, n, position, again)
  local err = spoiled(h, plan.ladder)
  if err then return nil, err end
  look(h, plan, ts, again)
  if not acquire and newest and not AGING then return true end
  local holds = true
  for j = 1, limits do
    local window, max, p, level, lo, hi = window[j], max[j], sums[j], level[j], nil, nil
    -- A window with a sum of zero may belong to a level that has lost its buckets.
    local plain = newest and (AGING or p ~= 0 or #h == 0)
    if not plain then p, level, lo, hi = peak(h, ladder, window, ts) end
    if not p or level == 0 then return nil, 'OUTOFREACH ' .. position .. ' ' .. digits[window] end
    if acquire then
      local wait, width = 0, ladder.width[level]
      if p + n > max then
        holds = false
        if plain then
          lo, hi = (oldest[j] - level + 1) / 10, (present[level] - level + 1) / 10
        end
        wait = n > max and -1 or
          room(sorted(h, ladder, level), level, width, window, ts, lo, hi, max - n)
      end
      out[o + 1], out[o + 2], out[o + 3] = math.min(MOST, p), width, wait
      o = o + 3
    end
  end
  return holds
end

-- tell appends a hash as it is now to the reply.
local function tell(h, ladder)
  local size, n = o + 1, 0
  o = size
  for i = 1, #h, 2 do
    if ladder.width[h[i] % 10 + 1] then
      out[o + 1], out[o + 2] = h[i], math.min(MOST, h[i + 1])
      o, n = o + 2, n + 1
    end
  end
  out[size] = n
  steps = steps + 2 * n
end

local key = 1 -- position in KEYS of the last key that was processed

-- complete appends what is there after an add. For an acquire that is repeated, it fills in for
-- values that could not be found this time.
local function complete(acquire, start, checks)
  local answers = start
  for i = 1, checks do
    local plan, h = plans[args[a + 3 * i - 1]], hashes[KEYS[key + i]]
    answers = answers + 3 * plan.limits
    if not acquire and plan.limits > 0 and h then
      tell(h, plan.ladder)
    elseif not acquire then
      o = o + 1
      out[o] = 0
    end
  end
  while acquire and o < answers do
    o = o + 1
    out[o] = 0
  end
end

-- carry counts the checks of an operation. If a key refuses, it counts none of them and returns an
-- error text.
local function carry(checks, ts, mode, acquire)
  for i = 1, checks do
    local ban = acquire and args[a + 3 * i] < 0
    local refused = not ban and touch(args[a + 3 * i - 2], key + i)
    if refused then return refused end
  end
  several = checks > 1
  for i = 1, checks do
    local c = a + 3 * i
    position, state = key + i, args[c - 2]
    local name, plan, n, refused = KEYS[key + i], plans[args[c - 1]], args[c], nil
    if mode == 2 then
      refused, seen = takeNewest(name, plan, -n, ts), nil
    elseif not acquire or n > 0 then
      refused = count(name, plan, n, ts)
      if ts > now and n > 0 and not refused then markAhead(name, plan, ts) end
    end
    if refused then
      takeBack()
      return refused
    end
  end
end

-- Where the values of each check of the current operation begin in out.
local begins = {}

-- watched reports whether one of the limits that a ban watches refuses. They are those from one
-- number, from 0 on, up to another of the check that begins at from in out.
local function watched(n, from)
  local x = -n - 1
  for j = floor(x / 65536) + 1, x % 65536 do
    if out[from + 3 * j] ~= 0 then return true end
  end
  return false
end

-- ban starts the bans of an acquire that was refused. If a key refuses, none is started, what carry
-- has counted is taken back, and it returns an error text.
local function ban(checks)
  local banned, started = nil, {}
  several = true
  for i = 1, checks do
    local c, from = a + 3 * i, begins[i]
    if args[c] > 0 then
      banned = from
    elseif banned and out[from + 3] == 0 and watched(args[c], banned) then
      local name, plan, width = KEYS[key + i], plans[args[c - 1]], out[from + 2]
      position, state = key + i, args[c - 2]
      local refused = touch(state, position)
      local own, parts = ownLevel(plan.ladder, plan.window[1]), {16, 16}
      local ends = floor((now + plan.window[1]) / width) + 1
      parts[own] = 1 + (ends - floor(now / width)) * ENDS[own]
      if not refused and not started[name] then refused = count(name, plan, 1, now, parts) end
      if refused then
        takeBack()
        return refused
      end
      started[name] = started[name] or ends * width - 1
      out[from + 1], out[from + 2] = 1, -width
      out[from + 3] = started[name] - now
    end
  end
end

-- fits reports whether there is room for reading a hash.
local function fits(key, ladder)
  return hashes[key] or steps + READ * ladder.most <= most or steps + READ * size(key) <= most
end

local decided, total, left, divide = {}, num(), nil, false
for op = 1, total do
  if repeated and (op > #verdicts or verdicts == 't') or op > 1 and steps > most then
    left = op
    break
  end
  local acquire, mode, ts, checks = args[a + 1] == 1, args[a + 2], args[a + 3], args[a + 4]
  a = a + 4
  local allowed, failed, start, banned, bans = true, nil, o + 1, false, false
  o, seen = start, nil
  for i = 1, checks do
    local name, plan, n = KEYS[key + i], plans[args[a + 3 * i - 1]], args[a + 3 * i]
    steps = steps + 20 + 5 * plan.limits
    if acquire or plan.limits > 0 then
      if not fits(name, plan.ladder) then
        if repeated then break end
        divide = op == 1 and acquire and n > 0 and name ~= KEYS[key + 1]
        if op > 1 or divide then
          left = op
          break
        end
      end
      local h, again, holds
      h, again, failed = load(name, plan.ladder)
      if failed then break end
      begins[i] = o
      if acquire and n < 0 then
        bans = true
        holds, failed = forbids(h, plan)
        banned = banned or holds == false
      else
        for j = 1, checks do
          if j ~= i and KEYS[key + j] == name then n = n + args[a + 3 * j] end
        end
        holds, failed = judge(acquire, h, plan, ts, n, i, again)
      end
      if failed then break end
      allowed = allowed and holds
    end
  end
  if left then
    for i = o, start, -1 do out[i] = nil end
    o = start - 1
    break
  end
  if repeated then
    local verdict = string.sub(verdicts, op, op)
    if verdict == 'e' then failed = failed or 'ERR refused before' else failed = nil end
    allowed = verdict == '1'
  elseif not failed and mode ~= 3 then
    for i = #done, 1, -1 do done[i] = nil end
    if allowed or mode == 1 and not banned then failed = carry(checks, ts, mode, acquire) end
    if bans and not allowed and not failed then failed = ban(checks) end
  end
  decided[op] = failed and 'e' or (allowed and '1' or '0')
  if failed then
    for i = o, start + 2, -1 do out[i] = nil end
    out[start], out[start + 1] = 2, failed
    o = start + 1
  else
    out[start] = allowed and 1 or 0
    if not acquire or repeated then complete(acquire, start, checks) end
  end
  a, key = a + 3 * checks, key + checks
end
-- The operations that are left.
divide = divide or verdicts == 't'
if divide then decided[1] = 't' end
for op = left or total + 1, total do
  o = o + 1
  out[o] = op == 1 and divide and 4 or 3
end
if not repeated then
  local set = try('SET', KEYS[1], ARGV[1] .. ':' .. table.concat(decided), 'PX', ARGV[2])
  -- Otherwise operations were carried out, whether or not the sequence was stored.
  if set.err and not wrote then return set end
  for at, added in pairs(fresh) do
    list(KEYS[at], tonumber(try('HGET', KEYS[at], 'k') or '0'), added, longest)
  end
end
out[2] = math.ceil(steps)
return cmsgpack.pack(out)
