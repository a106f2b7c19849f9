-- Operations of pure-Redis mode, carried out one after the other.
--
-- KEYS: sequence of the sender, then the hash of every check, then the partitions' state hashes,
-- where the versions are.
--
-- ARGV: the sequence, its ttl, and a MessagePack array of numbers, which costs much less than as
-- many arguments: the present, the most steps, number of ladders, the ladders (number of levels,
-- then as for ladderOf), number of plans, the plans (ladder, number of limits, then window and max
-- for each; for a calendar period, its length as a negative number, max, and its start), number of
-- operations, the operations (acquire or add (1 or 0), mode, time, number of checks, then position
-- of the version, plan, n and companion for each). Then the hashes for the list of keys, one for
-- each check.
--
-- The companion is 0 for events. A negative one makes the check the ban of the last check of events
-- before it: it refuses while an event of its key lies ahead, whatever the mode. If none does, and
-- one of some limits of the other check refuses, a ban as long as its window is counted once, in
-- the millisecond in which it ends, unless the mode is 3. Which limits is in the companion, see
-- watched. A positive one is the end of n leases, which are counted in that millisecond, or
-- returned if n is negative, see tally.
--
-- Modes: 0 to count what is allowed, 1 to count what is refused as well unless a ban is active, 2
-- for an add that takes back the newest events, 3 to count nothing, 4 to count in any case.
--
-- Reply: a MessagePack array: whether the sequence was known, the steps, then for each operation
-- either 2 and an error, or whether it is allowed (1 or 0) and its checks. The check of an acquire
-- is count, by how many milliseconds the edges of its windows are uncertain, and retry after (or 0
-- or -1) for each limit. That of an add is the number of cells, and start, width and count of each.
-- A ban that has started has -1 in place of an uncertainty.
--
-- A call takes a limited number of steps, each about as long as it takes to look at a cell. The
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

-- The largest Lua number that fits an integer of Redis, and the number up to which sums are exact.
local MOST, EXACT = 9223372036854774784, 2 ^ 53
-- Nearly always the same few counts are read and written, so each is converted only once.
local counts = setmetatable({}, {__index = function(t, s)
  -- A value that HINCRBY would refuse is not a count.
  local digits = string.match(s, '^%-?([1-9]%d*)$')
  local fits = digits and
    (#digits < 19 or #digits == 19 and digits <= '9223372036854775807')
  local n = s == '0' and 0 or fits and tonumber(s)
  if n then n = math.max(-MOST, math.min(MOST, n)) end
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

-- The steps so far, and those that reading a cell takes.
local steps, READ = 0, 12

local ladders, plans = {}, {}
for i = 1, num() do
  local levels = num()
  local first = a + 1
  a = a + 3 + 2 * levels
  local l = ladderOf(args, first, a)
  l.fine, l.coarse, l.life, l.since = l.width[1], l.width[levels], args[first + 2], sinceOf(l, now)
  l.oldest = l.since[levels]
  ladders[i] = l
end
for i = 1, num() do
  local p = {ladder = ladders[num()], limits = num(), window = {}, max = {}, from = {}, longest = 0}
  for j = 1, p.limits do
    local window = num()
    p.max[j] = num()
    if window < 0 then window, p.from[j] = -window, num() end
    p.window[j] = window
    p.longest = math.max(p.longest, window)
  end
  steps = steps + 10 + 5 * p.limits
  plans[i] = p
end

-- A hash that was read is three lists with the start, the end and the count of each of its n cells.
-- No count is negative. If it is sorted, then by end and of cells that end together the widest
-- comes first. sums, if it is there, has how many events are in the first i cells, and least the
-- earliest start of cell i and all after it.
local hashes = {}

-- settle takes what the cell at position i of a hash lacks from the cells that contain it, or from
-- those inside it, oldest first.
local function settle(h, i, inside)
  local starts, ends, ns, chosen = h.starts, h.ends, h.ns, {}
  for j = 1, h.n do
    local first, second = i, j
    if inside then first, second = j, i end
    if ns[j] > 0 and starts[second] <= starts[first] and ends[second] >= ends[first] then
      chosen[#chosen + 1] = j
    end
  end
  table.sort(chosen, function(j, k)
    if starts[j] ~= starts[k] then return starts[j] < starts[k] end
    return j < k
  end)
  for k = 1, #chosen do
    local j = chosen[k]
    local taken = math.min(ns[j], -ns[i])
    ns[j], ns[i] = ns[j] - taken, ns[i] + taken
    if ns[i] == 0 then break end
  end
  steps = steps + h.n
end

-- offset settles counts that are negative, as leaparray.SettleNegatives does. What is left counts
-- as zero.
local function offset(h)
  local ns = h.ns
  for i = 1, h.n do
    if ns[i] < 0 then settle(h, i, false) end
    if ns[i] < 0 then settle(h, i, true) end
  end
  for i = 1, h.n do ns[i] = math.max(0, ns[i]) end
end

-- load reads a hash once. It also returns whether the hash had been read before.
local function load(key)
  local h = hashes[key]
  if h then return h, true end
  local flat = try(HGETALL, key)
  if flat.err then return nil, false, flat.err end
  local starts, ends, ns, n, latest = {}, {}, {}, 0, -1
  h = {starts = starts, ends = ends, ns = ns, n = 0, sorted = true}
  for i = 1, #flat, 2 do
    local start, width = cell(flat[i])
    local count = start and counts[flat[i + 1]]
    if count then
      n = n + 1
      local e = start + width
      starts[n], ends[n], ns[n] = start, e, count
      if e <= latest then h.sorted = false end
      if count < 0 then h.odd = true end
      latest = e
    elseif start then
      h.alien = true
    end
  end
  steps = steps + READ * #flat / 2
  h.n = n
  if h.odd then offset(h) end
  hashes[key] = h
  return h, false
end

-- sort brings the cells of a hash in order.
local function sort(h)
  if h.sorted then return end
  local starts, ends, ns = h.starts, h.ends, h.ns
  local at, before, distinct, n = {}, {}, {}, 0
  for i = 1, h.n do
    local e = ends[i]
    local other = at[e]
    if other then before[i] = other else n = n + 1; distinct[n] = e end
    at[e] = i
  end
  table.sort(distinct)
  local s, e, c, k = {}, {}, {}, 0
  for d = 1, n do
    local first, i = k + 1, at[distinct[d]]
    while i do
      k = k + 1
      local p = k
      while p > first and s[p - 1] > starts[i] do
        s[p], c[p] = s[p - 1], c[p - 1]
        p = p - 1
      end
      s[p], c[p], e[k] = starts[i], ns[i], distinct[d]
      i = before[i]
    end
  end
  h.starts, h.ends, h.ns, h.sorted = s, e, c, true
  steps = steps + 5 * h.n
end

-- index sorts a hash and adds up its cells, once. It returns false if the sum is too large.
local function index(h)
  if h.sums ~= nil then return h.sums end
  sort(h)
  local starts, ns, sums, least, sum, first = h.starts, h.ns, {[0] = 0}, {}, 0, math.huge
  for i = 1, h.n do
    sum = sum + ns[i]
    sums[i] = sum
  end
  for i = h.n, 1, -1 do
    if starts[i] < first then first = starts[i] end
    least[i] = first
  end
  steps = steps + 2 * h.n
  h.sums, h.least = sum < EXACT and sums, least
  return h.sums
end

-- upTo returns how many cells of a sorted hash end at a moment or before.
local function upTo(h, ms)
  local ends, lo, hi = h.ends, 0, h.n
  while lo < hi do
    local mid = floor((lo + hi + 1) / 2)
    if ends[mid] <= ms then lo = mid else hi = mid - 1 end
  end
  return lo
end

-- find returns the position of a cell in a hash, if it is there.
local function find(h, start, width)
  local starts, ends, e, i = h.starts, h.ends, start + width, h.n
  if h.sorted then i = upTo(h, e) end
  while i > 0 do
    if ends[i] == e and starts[i] == start then return i end
    if ends[i] < e and h.sorted then return nil end
    i = i - 1
  end
end

-- raise adds n, which may be negative, to the cell at position i of a hash.
local function raise(h, i, n)
  h.ns[i], h.after = math.max(0, h.ns[i] + n), nil
  local sums = h.sums
  for j = i, sums and h.n or 0 do sums[j] = sums[j] + n end
end

-- insert adds a cell to a hash, which stays sorted if it is.
local function insert(h, start, width, n)
  local starts, ends, ns, sums, least, e = h.starts, h.ends, h.ns, h.sums, h.least, start + width
  local i = h.n + 1
  h.n, h.after = i, nil
  while i > 1 and h.sorted and (ends[i - 1] > e or ends[i - 1] == e and starts[i - 1] > start) do
    starts[i], ends[i], ns[i] = starts[i - 1], ends[i - 1], ns[i - 1]
    if sums then sums[i], least[i] = sums[i - 1] + n, least[i - 1] end
    i = i - 1
  end
  starts[i], ends[i], ns[i] = start, e, n
  steps = steps + (h.n - i) / 2
  if sums then
    sums[i], least[i] = sums[i - 1] + n, math.min(start, least[i + 1] or start)
    for j = i - 1, 1, -1 do
      if least[j] <= start then break end
      least[j] = start
    end
  end
end

-- For each limit of the current check, when its window begins, the sum of the cells that it touches
-- and the width of the widest that its start cuts.
local froms, sums, edges = {}, {}, {}

-- goThrough looks at all cells of a hash to find these. It returns whether some event is later.
local function goThrough(h, plan, ts)
  local starts, ends, ns, limits, later = h.starts, h.ends, h.ns, plan.limits, false
  local first = ts - plan.longest + 1
  for i = h.n, 1, -1 do
    local e, n = ends[i], ns[i]
    if e > first and n > 0 then
      local s = starts[i]
      if s > ts then
        later = true
      else
        for j = 1, limits do
          local from = froms[j]
          if e > from then
            sums[j] = sums[j] + n
            if s < from and e - s > edges[j] then edges[j] = e - s end
          end
        end
      end
    elseif e <= first and h.sorted then
      break
    end
  end
  steps = steps + h.n
  return later
end

-- lookUp does the same in a hash that has sums.
local function lookUp(h, plan, ts)
  local starts, ends, ns, least, count, later = h.starts, h.ends, h.ns, h.least, h.n, false
  for i = count, 1, -1 do
    if ends[i] <= ts then break end
    later = later or starts[i] > ts and ns[i] > 0
  end
  for j = 1, plan.limits do
    local from = froms[j]
    local i = upTo(h, from)
    sums[j] = h.sums[count] - h.sums[i]
    i = i + 1
    while i <= count and least[i] < from do
      if starts[i] < from and ns[i] > 0 then edges[j] = math.max(edges[j], ends[i] - starts[i]) end
      i = i + 1
    end
  end
  steps = steps + 10 * plan.limits
  return later
end

-- look fills in froms, sums and edges. It returns whether some event is later: then these do not
-- decide. A hash that is asked for again is indexed: busy keys have many cells and come often.
local function look(h, plan, ts, again)
  for j = 1, plan.limits do
    froms[j], sums[j], edges[j] = plan.from[j] or ts - plan.window[j] + 1, 0, 1
  end
  if (again or plan.limits > 4) and index(h) then return lookUp(h, plan, ts) end
  return goThrough(h, plan, ts)
end

-- total returns the sum of all cells that a period touches, later than ts or not, and the width of
-- the widest that its start or its end cuts.
local function total(h, from, till)
  local starts, ends, ns, sum, edge = h.starts, h.ends, h.ns, 0, 1
  for i = 1, h.n do
    local s, e = starts[i], ends[i]
    if e > from and s < till and ns[i] > 0 then
      sum = sum + ns[i]
      if (s < from or e > till) and e - s > edge then edge = e - s end
    end
  end
  steps = steps + h.n
  return sum, edge
end

-- waiting returns how long it takes until no more than room is left of a window that ends at ts, if
-- no event is later.
local function waiting(h, room, window, ts)
  sort(h)
  local ns, sums, i, lo = h.ns, h.sums, h.n, 1
  if sums then
    local over = sums[i] - room
    while lo < i do
      local mid = floor((lo + i + 1) / 2)
      if sums[mid - 1] < over then lo = mid else i = mid - 1 end
    end
  else
    room = room - ns[i]
    while room >= 0 do
      i = i - 1
      room = room - ns[i]
    end
    steps = steps + h.n - i
  end
  return h.ends[i] + window - 1 - ts
end

-- lookAhead looks at what is later than ts in a sorted hash, once: enter are the positions of the
-- cells that begin after it, latest start first, ahead is the sum of these, and astride is the
-- width of the widest cell that it is in.
local function lookAhead(h, ts)
  if h.after == ts then return end
  local starts, ends, ns, enter, n, ordered = h.starts, h.ends, h.ns, {}, 0, true
  local ahead, astride = 0, 1
  for i = h.n, 1, -1 do
    local s, e = starts[i], ends[i]
    if e <= ts then break end
    if s > ts then
      n = n + 1
      enter[n], ahead = i, ahead + ns[i]
      ordered = ordered and (n == 1 or s <= starts[enter[n - 1]])
    elseif ns[i] > 0 then
      astride = math.max(astride, e - s)
    end
  end
  if not ordered then table.sort(enter, function(i, j) return starts[i] > starts[j] end) end
  steps = steps + n
  h.after, h.enter, h.entering, h.ahead, h.astride = ts, enter, n, ahead, astride
end

-- Sums that Lua can't hold exactly are in two parts, of which the higher one counts in these.
local SPLIT = 4294967296

-- plus adds n to a sum that may be in two parts.
local function plus(high, low, n)
  if not low then return high + n end
  local part = floor(n / SPLIT)
  return high + part, low + (n - part * SPLIT)
end

-- sumAt returns the sum of the cells from position i on that begin by ts, in two parts if need be.
local function sumAt(h, i, ts)
  if h.sums then return h.sums[h.n] - h.sums[i - 1] - h.ahead end
  local high, low = 0, 0
  for j = i, h.n do
    if h.starts[j] <= ts then high, low = plus(high, low, h.ns[j]) end
  end
  return high, low
end

-- sweep returns what leaparray.View says of the windows that contain ts: Peak, RetryAfter for room,
-- which is the limit without what comes, and Blur.
local function sweep(h, window, ts, room)
  index(h)
  lookAhead(h, ts)
  local starts, ends, ns, n, enter, k = h.starts, h.ends, h.ns, h.n, h.enter, h.entering
  local first, stop, shift = ts - window + 1, ts + window, window - 1
  local leave, blur = upTo(h, first) + 1, h.astride
  if leave > 1 and ends[leave - 1] == first and ns[leave - 1] > 0 then
    blur = math.max(blur, first - starts[leave - 1])
  end
  local high, low = sumAt(h, leave, ts)
  local peak, free, at, looked = 0, ts, ts, 0
  while at < free + window do
    local sum = low and high * SPLIT + low or high
    if sum > peak and at < stop then peak = sum end
    if leave > n then break end
    local next, i = ends[leave] + shift, enter[k]
    if i and starts[i] < next then next = starts[i] end
    if sum > room then free = next end
    while i and starts[i] == next do
      local e, c = ends[i], ns[i]
      high, low = plus(high, low, c)
      if c > 0 and e - next > blur and next < stop then blur = e - next end
      k, looked = k - 1, looked + 1
      i = enter[k]
    end
    while leave <= n and ends[leave] + shift == next do
      local e, c = ends[leave], ns[leave]
      high, low = plus(high, low, -c)
      if c > 0 and e <= ts and e - starts[leave] > blur then blur = e - starts[leave] end
      leave, looked = leave + 1, looked + 1
    end
    at = next
  end
  steps = steps + 1.5 * looked
  return peak, free - ts, blur
end

-- place returns the start and the width of the cell that counts an event, as leaparray.View.Cell
-- does, and its position in the hash, if it is there.
local function place(h, ladder, ts)
  local starts, ends, ns = h.starts, h.ends, h.ns
  local exact, fine, since = ladder.exact, ladder.fine, ladder.since
  local bucket, near, sum, newer, at = ts - ts % fine, ts - fine + 1, 0, 0, nil
  for i = exact > 0 and h.n or 0, 1, -1 do
    local e, s, n = ends[i], starts[i], ns[i]
    if e <= near then
      if h.sorted then break end
    elseif s > ts then
      newer = newer + n
      if newer >= exact then break end
    else
      sum = sum + n
      if s == ts and e == ts + 1 then
        at = i
      elseif s == bucket and e == s + fine and n > 0 then -- the key was busy a moment ago
        if bucket >= since[1] then return bucket, fine, i end
        sum = exact
      end
    end
  end
  steps = steps + 10
  if sum < exact and newer < exact then return ts, 1, at end
  for l = 1, #since do
    local width = ladder.width[l]
    local start = ts - ts % width
    if start >= since[l] or l == #since then return start, width, find(h, start, width) end
  end
end

-- holds reports whether a hash has something in the bucket of the coarsest level around a moment.
local function holds(h, ladder, ms)
  local starts, ends, ns, from = h.starts, h.ends, h.ns, ms - ms % ladder.coarse
  local to, i = from + ladder.coarse, 1
  if h.sorted then i = upTo(h, from) + 1 end
  for j = i, h.n do
    if ns[j] > 0 and starts[j] < to and ends[j] > from then return true end
    -- What begins by then and ends so much later is wider than any bucket of the ladder.
    if h.sorted and ends[j] > to + ladder.coarse then return false end
  end
  return false
end

-- position, state: where the current key and its partition's state are in KEYS.
local position, state

-- fresh has the hashes of keys that have to be listed, by the position of their partition's state,
-- and longest is how long the longest of them lives.
local fresh, longest = {}, 0

-- extend keeps the key alive until no window can reach it any more.
local function extend(key, ladder)
  fresh[state] = (fresh[state] or '') .. string.sub(ARGV[4], 4 * position - 7, 4 * position - 4)
  longest = math.max(longest, ladder.life)
  if ladder.dies == nil then
    local t = try('TIME')
    ladder.dies = not t.err and digits[t[1] * 1000 + floor(t[2] / 1000) + ladder.life]
  end
  -- PEXPIRE takes longer because it has to be rewritten for replicas.
  if not ladder.dies or type(try('PEXPIREAT', key, ladder.dies)) == 'table' then
    try('PEXPIRE', key, ladder.ttl)
  end
end

-- What the current operation has counted, in case it has to be taken back: key, field, ladder,
-- width and n for each cell.
local done, several = {}, false
local function note(key, field, ladder, width, n)
  local i = #done
  done[i + 1], done[i + 2], done[i + 3], done[i + 4], done[i + 5] = key, field, ladder, width, n
end

-- clear deletes a cell that was taken back to zero, unless it may be a mark.
local function clear(key, field, ladder, width, v)
  if width ~= ladder.fine and tonumber(v) == 0 then try(HDEL, key, field) end
end

local function takeBack()
  for i = 1, #done, 5 do
    local key, field, ladder, width = done[i], done[i + 1], done[i + 2], done[i + 3]
    local v = add(key, field, digits[-done[i + 4]], ladder.ttl)
    if type(v) ~= 'table' then clear(key, field, ladder, width, v) end
    hashes[key] = nil
  end
end

-- The keys that may have to fold at the end, with their ladders.
local grown = {}

-- put adds n to a cell, at position i of the hash if it is there. It returns an error text if the
-- key refuses.
local function put(key, h, ladder, start, width, i, n)
  local field = nameOf(start, width)
  local v = add(key, field, digits[n], ladder.ttl)
  if type(v) == 'table' then return v.err end
  if several then note(key, field, ladder, width, n) end
  if n > 0 and not holds(h, ladder, start) then extend(key, ladder) end
  if i then
    raise(h, i, n)
  else
    insert(h, start, width, n)
    -- To look once in a while is enough.
    if h.n % 8 == 0 or h.n > ladder.most then grown[key] = ladder end
  end
  if h.sums and h.sums[h.n] >= EXACT then h.sums = false end
  if h.odd then hashes[key] = nil end
end

-- tidy removes the cells from a hash that take has deleted.
local function tidy(h, ladder)
  local starts, ends, ns, k = h.starts, h.ends, h.ns, 0
  for i = 1, h.n do
    if ns[i] > 0 or ends[i] - starts[i] == ladder.fine then
      k = k + 1
      starts[k], ends[k], ns[k] = starts[i], ends[i], ns[i]
    end
  end
  if k < h.n then h.n, h.sums, h.least, h.after = k, nil, nil, nil end
end

-- take takes n back from the cell at position i of a hash. It returns an error text if the key
-- refuses.
local function take(key, h, ladder, i, n)
  local width = h.ends[i] - h.starts[i]
  local field = nameOf(h.starts[i], width)
  local v = add(key, field, digits[-n], ladder.ttl)
  if type(v) == 'table' then return v.err end
  note(key, field, ladder, width, -n)
  raise(h, i, -n)
  clear(key, field, ladder, width, v)
  if h.odd then hashes[key] = nil end
  steps = steps + 10
end

-- takeFrom takes n back from the cells at some positions of a hash, in their order. It returns an
-- error text if the key refuses.
local function takeFrom(key, h, ladder, n, found)
  local k = 0
  while n > 0 and k < #found do
    k = k + 1
    local d = math.min(n, h.ns[found[k]])
    local err = d > 0 and take(key, h, ladder, found[k], d)
    if err then return err end
    n = n - d
  end
  tidy(h, ladder)
end

-- takeAt takes n back from the cells that contain a moment, narrowest first, as
-- leaparray.View.SelectAt does: from those of other ladders last.
local function takeAt(key, h, ladder, n, ts)
  local starts, ends, found, rank = h.starts, h.ends, {}, {[1] = 1}
  for l = 1, #ladder.width do rank[ladder.width[l]] = ladder.width[l] end
  local order = {}
  for i = 1, h.n do
    if starts[i] <= ts and ends[i] > ts and h.ns[i] > 0 then
      local width = ends[i] - starts[i]
      found[#found + 1], order[i] = i, rank[width] or width + 1e13
    end
  end
  table.sort(found, function(i, j)
    if order[i] ~= order[j] then return order[i] < order[j] end
    return starts[i] > starts[j]
  end)
  steps = steps + h.n
  return takeFrom(key, h, ladder, n, found)
end

-- takeNewest takes the n newest events back, as leaparray.View.SelectNewest does.
local function takeNewest(key, h, ladder, n)
  sort(h)
  local starts, ends, found, ordered, k = h.starts, h.ends, {}, true, 0
  for i = h.n, 1, -1 do
    if h.ns[i] > 0 then
      k = k + 1
      found[k] = i
      local other = found[k - 1]
      ordered = ordered and (not other or starts[i] < starts[other] or
        starts[i] == starts[other] and ends[i] > ends[other])
    end
  end
  if not ordered then
    table.sort(found, function(i, j)
      if starts[i] ~= starts[j] then return starts[i] > starts[j] end
      return ends[i] < ends[j]
    end)
  end
  steps = steps + 5 * h.n
  return takeFrom(key, h, ladder, n, found)
end

-- markAhead marks that an event lies ahead of the present, in the bucket that
-- leaparray.Ladder.BucketAfter returns.
local function markAhead(key, ladder, ts)
  local h, fine = load(key), ladder.fine
  local beyond = ts - ts % fine + fine
  for i = 1, h and h.n or 0 do
    if h.starts[i] >= beyond and h.ends[i] - h.starts[i] == fine then return end
  end
  steps = steps + 10
  if type(add(key, nameOf(beyond, fine), '0', ladder.ttl)) ~= 'table' and h then
    insert(h, beyond, fine, 0)
  end
end

-- busy returns the field of the finest bucket around a moment if it already has events: then it
-- counts the next one as well, and the hash need not be read for that.
local function busy(key, ladder, ts)
  if hashes[key] then return nil end
  local start = ts - ts % ladder.fine
  if ts > now or start < ladder.since[1] then return nil end
  if ladder.named ~= start then
    ladder.named, ladder.name = start, nameOf(start, ladder.fine)
  end
  local v = try(HGET, key, ladder.name)
  steps = steps + 5
  return type(v) == 'string' and (counts[v] or 0) > 0 and ladder.name or nil
end

-- foldGrown folds a key if it has many cells that are due, or more than it may have.
local function foldGrown(key, ladder)
  local h = load(key)
  if not h then return end
  sort(h)
  local starts, ends, ns, from, sum = h.starts, h.ends, h.ns, math.huge, 0
  for i = h.n, ladder.exact > 0 and 1 or h.n + 1, -1 do
    from, sum = math.min(from, starts[i]), sum + ns[i]
    if sum >= ladder.exact then break end
  end
  if sum < ladder.exact then from = 0 end
  local due, bound = 0, math.max(from, ladder.oldest)
  for i = 1, h.n do
    if ends[i] > bound then break end
    if foldInto(ladder, ladder.since, starts[i], ends[i] - starts[i], now, from) then
      due = due + 1
    end
  end
  steps = steps + 2 * h.n
  if due >= 32 or h.n > ladder.most then
    steps = steps + READ * h.n
    fold(key, ladder, now)
  end
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

-- forbids looks for a ban that holds at present. It returns whether there is none.
local function forbids(h)
  local ends, latest = h.ends, now
  for i = 1, h.n do
    if h.ns[i] > 0 and ends[i] - 1 > latest then latest = ends[i] - 1 end
  end
  steps = steps + h.n
  out[o + 1], out[o + 2], out[o + 3] = latest > now and 1 or 0, 1, latest - now
  o = o + 3
  return latest == now
end

-- judge compares all limits of a check with the counts and n. It returns whether they hold, or nil
-- and an error text.
local function judge(acquire, h, plan, ts, n, position, again)
  local window, holds, later = plan.window, true, nil
  for j = 1, plan.limits do
    local from = plan.from[j] or ts - window[j] + 1
    if from < plan.ladder.oldest then
      return nil, 'OUTOFREACH ' .. position .. ' ' .. digits[ts - from + 1]
    end
  end
  if not acquire then return true end
  later = look(h, plan, ts, again)
  for j = 1, plan.limits do
    local sum, edge, room, wait, from = sums[j], edges[j], plan.max[j] - n, 0, plan.from[j]
    if from then
      sum, edge = total(h, from, from + window[j])
    elseif later then
      sum, wait, edge = sweep(h, window[j], ts, room < 0 and math.huge or room)
    end
    if sum > room then
      holds = false
      if room < 0 then
        wait = -1
      elseif from then
        wait = from + window[j] - ts
      elseif not later then
        wait = waiting(h, room, window[j], ts)
      end
    end
    out[o + 1], out[o + 2], out[o + 3] = math.min(MOST, sum), edge, wait
    o = o + 3
  end
  return holds
end

-- isOpen reports whether the cell at position i of a hash has leases that have not ended. Events that
-- lie ahead never fold, so wider buckets hold leases that have ended.
local function isOpen(h, i)
  return h.starts[i] > now and h.ends[i] - h.starts[i] == 1
end

-- tally compares the leases that a check takes with the open ones, or those that it returns with
-- the ones that end at the same moment. total is n and that of all other checks of the key. It
-- returns whether the check holds.
local function tally(h, plan, n, total, ends)
  local count, wait, most = 0, 0, plan.max[1]
  if n < 0 then
    local i = find(h, ends, 1)
    count = i and h.ns[i] or 0
    if ends <= now or count + math.min(n, total) < 0 then wait = -1 end
  else
    for i = 1, h.n do
      if isOpen(h, i) then count = count + h.ns[i] end
    end
    local room = most - math.max(0, total)
    if room < 0 then
      wait = -1
    elseif count > room then
      sort(h)
      local open = count
      for i = 1, h.n do
        if isOpen(h, i) then open = open - h.ns[i] end
        if open <= room then
          wait = h.ends[i] - 1 - now
          break
        end
      end
    end
  end
  steps = steps + 2 * h.n
  out[o + 1], out[o + 2], out[o + 3] = count, 1, wait
  o = o + 3
  return wait == 0
end

-- tell appends a hash as it is now to the reply.
local function tell(h)
  o = o + 1
  out[o] = h.n
  for i = 1, h.n do
    out[o + 1], out[o + 2] = h.starts[i], h.ends[i] - h.starts[i]
    out[o + 3] = math.min(MOST, h.ns[i])
    o = o + 3
  end
  steps = steps + 3 * h.n
end

local key = 1 -- position in KEYS of the last key that was processed

-- complete appends what is there after an add. For an acquire that is repeated, it fills in for
-- values that could not be found this time.
local function complete(acquire, start, checks)
  local answers = start
  for i = 1, checks do
    local plan, name = plans[args[a + 4 * i - 2]], KEYS[key + i]
    answers = answers + 3 * plan.limits
    local h = not acquire and plan.limits > 0 and (hashes[name] or not repeated and load(name))
    if h then
      tell(h)
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

-- The fields that adds of the current operation are counted in without reading the hash.
local fields = {}

-- carryLeases takes or returns leases that end at a moment. It returns an error text if the key
-- refuses.
local function carryLeases(name, h, ladder, n, ends)
  local at = find(h, ends, 1)
  if n > 0 then return put(name, h, ladder, ends, 1, at, n) end
  return take(name, h, ladder, at, -n)
end

-- carryOne counts one check of an operation. It returns an error text if the key refuses.
local function carryOne(i, name, ladder, n, ts, mode, ends)
  local h, _, refused
  if fields[i] then
    local v = add(name, fields[i], digits[n], ladder.ttl)
    if type(v) == 'table' then return v.err end
    if several then note(name, fields[i], ladder, ladder.fine, n) end
    return
  end
  h, _, refused = load(name)
  if not h then return refused end
  if ends > 0 then return carryLeases(name, h, ladder, n, ends) end
  if mode == 2 then return takeNewest(name, h, ladder, -n) end
  if n < 0 then return takeAt(name, h, ladder, -n, ts) end
  local start, width, at = place(h, ladder, ts)
  refused = put(name, h, ladder, start, width, at, n)
  if ts > now and not refused then markAhead(name, ladder, ts) end
  return refused
end

-- carry counts the checks of an operation, but no leases if it was refused. If a key refuses, it
-- counts none of them and returns an error text.
local function carry(checks, ts, mode, allowed)
  for i = 1, checks do
    local c = a + 4 * i
    local refused = args[c] >= 0 and touch(args[c - 3], key + i)
    if refused then return refused end
  end
  several = checks > 1
  for i = 1, checks do
    local c = a + 4 * i
    position, state = key + i, args[c - 3]
    local n, ends = args[c - 1], args[c]
    if n ~= 0 and (ends == 0 or ends > 0 and allowed) then
      local refused = carryOne(i, KEYS[key + i], plans[args[c - 2]].ladder, n, ts, mode, ends)
      if refused then
        takeBack()
        return refused
      end
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

-- startBan counts a ban that ends at a moment. It returns an error text if the key refuses.
local function startBan(name, ladder, ends)
  local refused = touch(state, position)
  if refused then return refused end
  local h, _, err = load(name)
  if not h then return err end
  return put(name, h, ladder, ends, 1, find(h, ends, 1), 1)
end

-- ban starts the bans of an acquire that was refused. If a key refuses, none is started, what carry
-- has counted is taken back, and it returns an error text.
local function ban(checks)
  local banned, started = nil, {}
  several = true
  for i = 1, checks do
    local c, from = a + 4 * i, begins[i]
    if args[c] == 0 then
      banned = from
    elseif args[c] < 0 and banned and out[from + 3] == 0 and watched(args[c], banned) then
      local name, plan = KEYS[key + i], plans[args[c - 2]]
      position, state = key + i, args[c - 3]
      local ends = started[name] or now + plan.window[1]
      local refused = not started[name] and startBan(name, plan.ladder, ends)
      if refused then
        takeBack()
        return refused
      end
      started[name] = ends
      out[from + 1], out[from + 2], out[from + 3] = 1, -1, ends - now
    end
  end
end

-- fits reports whether there is room for reading a hash.
local function fits(key, ladder)
  if hashes[key] or steps + READ * ladder.most <= most then return true end
  local n = try(HLEN, key)
  return type(n) ~= 'number' or steps + READ * n <= most
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
  o = start
  for i = 1, checks do
    local c, name = a + 4 * i, KEYS[key + i]
    local plan, n, ends = plans[args[c - 2]], args[c - 1], args[c]
    steps = steps + 20 + 5 * plan.limits
    local plain = not acquire and plan.limits == 0
    fields[i] = plain and n > 0 and not repeated and busy(name, plan.ladder, ts)
    if not fields[i] and not (plain and repeated) then
      if not fits(name, plan.ladder) then
        if repeated then break end
        divide = op == 1 and acquire and ends == 0 and name ~= KEYS[key + 1]
        if op > 1 or divide then
          left = op
          break
        end
      end
      local h, again, holds
      h, again, failed = load(name)
      if h and h.alien then failed = 'ERR a cell holds what is no count' end
      if failed then break end
      begins[i] = o
      if ends < 0 then
        bans = true
        holds = forbids(h)
        banned = banned or not holds
      else
        local total = n
        for j = 1, checks do
          if j ~= i and KEYS[key + j] == name then total = total + args[a + 4 * j - 1] end
        end
        if ends > 0 then
          holds = tally(h, plan, n, total, ends)
        else
          if acquire then total = math.max(1, total) end
          holds, failed = judge(acquire, h, plan, ts, total, i, again)
        end
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
    if allowed or mode == 4 or mode == 1 and not banned then
      failed = carry(checks, ts, mode, allowed)
    end
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
  a, key = a + 4 * checks, key + checks
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
  for name, ladder in pairs(grown) do pcall(foldGrown, name, ladder) end
end
out[2] = math.ceil(steps)
return cmsgpack.pack(out)
