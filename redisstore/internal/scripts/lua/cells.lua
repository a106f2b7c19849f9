-- A cell of a key is a stretch of time, given by its start and its width in unix milliseconds, and
-- the number of events in it. The field of a bucket is minus the number that is written as its
-- index, its width, and the last digit of the number of the width's digits.
--
-- Events that keep their millisecond are listed in fields that begin with o, MOST in each: a list
-- of four bytes for each moment, how long it is after the base of the field (24 bits, from -2^23
-- on), and the number of events, up to 255. The name goes on with the base (48 bits) and one more
-- byte. Moments are added to the field o, whose base is at the beginning of its value, followed by
-- how many moments the other fields list (16 bits). A moment may be listed several times. Any other
-- number of events, such as one that was taken back, has a field with the time as its name.
--
-- A value of a key has the field v and, after that, the bytes of its hash. What it has is when it
-- was last seen, in unix milliseconds.

-- isValue reports whether a field is that of a value. Those of cells are numbers.
local byte = string.byte
local function isValue(field) return field and byte(field) == 118 end

local char, floor, sub = string.char, math.floor, string.sub
local OPEN, HEAD, MOST, MIDDLE = 'o', 8, 13, 2 ^ 23
local ATONCE = 7000 -- Lua can't unpack more than about 8,000 at a time

-- baseAt returns the base whose bytes begin at a position.
local function baseAt(text, at)
  local a, b, c, d, e, f = byte(text, at, at + 5)
  return ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
end

-- headOf returns what the value of the field o begins with.
local function headOf(base, total)
  local high, low = floor(base / 2 ^ 24), base % 2 ^ 24
  local n = math.min(total, 65535)
  return char(floor(high / 65536), floor(high / 256) % 256, high % 256, floor(low / 65536),
    floor(low / 256) % 256, low % 256, floor(n / 256), n % 256)
end

-- eachMoment calls fn with the time, the number of events, and the position of each moment in a
-- list.
local function eachMoment(base, list, fn)
  for at = 1, #list, 4 do
    local a, b, c, n = byte(list, at, at + 3)
    fn(base + (a * 256 + b) * 256 + c - MIDDLE, n, at)
  end
end

-- isMoments reports whether a field lists moments, and isMoment whether a field is the time of one.
local function isMoments(field) return byte(field) == 111 end
local function isMoment(field) return field and byte(field) < 58 and byte(field) > 47 end

-- listOf returns the base of a field that lists moments, and the list: nil if it is none.
local function listOf(field, value)
  local list, named = value, field
  if field == OPEN then list, named = sub(value, HEAD + 1), OPEN .. sub(value, 1, 6) .. ' ' end
  if #named ~= 8 or #list % 4 ~= 0 or field == OPEN and #value < HEAD then return nil end
  return baseAt(named, 2), list
end

-- seal moves the moments of the field o to the first field of the same base that has room for them,
-- in Redis or in sets. A key folds long before there is none.
local function seal(key, held, sets)
  local list, last, name, at, there = sub(held, HEAD + 1), -1, nil, nil, nil
  repeat
    last = last + 1
    name = OPEN .. sub(held, 1, 6) .. char(last)
    at = sets[name] or #sets + 2
    there = sets[at] or redis.pcall(HGET, key, name) or ''
  until last == 255 or #there + #list <= 4 * MOST
  sets[at - 1], sets[at], sets[name] = name, there .. list, at
end

-- listedIn returns how many moments are listed, by the value of the field o.
local function listedIn(held)
  local high, low = byte(held, 7, 8)
  return low and high * 256 + low + (#held - HEAD) / 4 or 0
end

-- momentIn returns a moment as a list has it.
local function momentIn(after, n)
  return char(floor(after / 65536), floor(after / 256) % 256, after % 256, n)
end

-- isList reports whether the field o may have a value.
local function isList(held) return #held >= HEAD and #held % 4 == 0 end

-- pushOne counts events of one moment in the field o, if that has room for it. It returns false if
-- it has not; or how many fields are new, which are none, or an error.
local function pushOne(key, time, n, ttl)
  local held = redis.pcall(HGET, key, OPEN)
  if type(held) ~= 'string' or #held >= HEAD + 4 * MOST or not isList(held) then return false end
  local after = time - baseAt(held, 1) + MIDDLE
  if after < 0 or after >= 2 * MIDDLE then return false end
  return put(key, ttl, OPEN, held .. momentIn(after, n))
end

-- push counts events of moments: adds has the time and the number of each, from position first to
-- last, in digits. It returns how many fields are new and how many moments are listed; or an error
-- text, and has counted nothing.
local function push(key, adds, first, last, ttl)
  local held, base, total = redis.pcall(HGET, key, OPEN), nil, 0
  if held then
    if type(held) == 'table' then return nil, held.err end
    if not isList(held) then return nil, 'ERR hash value is not a list of moments' end
    base, total = baseAt(held, 1), listedIn(held) - (#held - HEAD) / 4
  end
  local sets = {}
  for i = first, last, 2 do
    local after = base and adds[i] - base + MIDDLE
    if base and (#held >= HEAD + 4 * MOST or after < 0 or after >= 2 * MIDDLE) then
      seal(key, held, sets)
      total = total + (#held - HEAD) / 4
      base = nil
    end
    if not base then
      base, after = tonumber(adds[i]), MIDDLE
      held = headOf(base, total)
    end
    held = held .. momentIn(after, tonumber(adds[i + 1]))
  end
  sets[#sets + 1], sets[#sets + 2] = OPEN, held
  if #sets > ATONCE then return nil, 'ERR too many moments at once' end
  local new = put(key, ttl, unpack(sets))
  if type(new) == 'table' then return nil, new.err end
  return new, total + (#held - HEAD) / 4
end

-- isPushed reports whether an add is counted by push.
local function isPushed(field, delta)
  return isMoment(field) and tonumber(delta) > 0 and tonumber(delta) < 256
end

-- cell returns the start and the width of a field's cell, nil if the field is none. It matches
-- layout.ParseField in Go.
local function cell(field)
  local n = tonumber(field)
  if not n or n % 1 ~= 0 or n >= 1e15 or n <= -1e15 then return nil end
  if n >= 0 then return n, 1 end
  n = -n
  local digits = n % 10
  n = (n - digits) / 10
  -- The narrowest bucket has two digits, the widest eleven.
  local scale = 10 ^ (digits < 2 and digits + 10 or digits)
  local width = n % scale
  if width < scale / 10 then return nil end
  return (n - width) / scale * width, width
end

-- TIMES and PLUS say for each width by what the index is multiplied in a field, and what is added.
local TIMES, PLUS = {}, {}

-- nameOf returns the field of a cell.
local function nameOf(start, width)
  if width == 1 then return string.format('%.0f', start) end
  local times = TIMES[width]
  if not times then
    local digits = #string.format('%.0f', width)
    times = 10 ^ (digits + 1)
    TIMES[width], PLUS[width] = times, width * 10 + digits % 10
  end
  return string.format('-%.0f', start / width * times + PLUS[width])
end

-- A ladder is a table: exact, how many events keep their millisecond; most, how many cells a key
-- has at most once it has folded; width and count, lists with the width and the number of the
-- buckets of each level; ttl, how long a field lives where fields expire. It matches
-- leaparray.Ladder.

-- sinceOf returns for each level of a ladder the start of the oldest bucket that does not fold.
local function sinceOf(ladder, now)
  local widths, since = ladder.width, {}
  for i = 1, #widths do
    local width = widths[i]
    local start, next = now - now % width - ladder.count[i] * width, widths[i + 1]
    since[i] = next and start - start % next or start
  end
  return since
end

-- byEnd returns cells, tables of {start, width, count}, in order: latest end first, and of the same
-- end latest start first. Lua sorts plain numbers faster than by a function.
local function byEnd(cells)
  local ends, at = {}, {}
  for i = 1, #cells do
    local c = cells[i]
    local e = c[1] + c[2]
    local first = at[e]
    if not first then
      ends[#ends + 1], at[e] = e, c
    elseif first[1] < c[1] then
      c.next, at[e] = first, c
    else
      while first.next and first.next[1] > c[1] do first = first.next end
      c.next, first.next = first.next, c
    end
  end
  table.sort(ends)
  local sorted, n = {}, 0
  for i = #ends, 1, -1 do
    local c = at[ends[i]]
    while c do
      n = n + 1
      sorted[n] = c
      c = c.next
    end
  end
  return sorted
end

-- exactFrom returns the moment from which on cells stay as they are, so that the newest events of a
-- key keep their millisecond. The cells are in the order of byEnd.
local function exactFrom(ladder, cells)
  if ladder.exact == 0 then return math.huge end
  local from, sum = math.huge, 0
  for i = 1, #cells do
    local c = cells[i]
    if c[1] < from then from = c[1] end
    sum = sum + c[3]
    -- A moment may have several cells, of which some are negative.
    local next = cells[i + 1]
    local last = not next or next[1] ~= c[1] or next[2] ~= c[2]
    if last and sum >= ladder.exact then return from end
  end
  return 0
end

-- foldInto returns the start and the width of the bucket that a cell folds into: nil if it does not
-- fold, and no width if it has left every window.
local function foldInto(ladder, since, start, width, now, exact)
  local widths = ladder.width
  if start + width <= since[#widths] then return start, nil end
  if width == 1 and start > now then return nil end
  for i = 1, #widths do
    local w = widths[i]
    local first = start - start % w
    if first >= since[i] then
      if w > width and first + w >= start + width and first + w <= exact then return first, w end
      return nil
    end
  end
end

-- cellsOf returns the cells of a hash, given as a flat list, as a list of {start, width, count,
-- field, value, position in the list of the field or nil}. Those that have no count are left out.
local function cellsOf(flat)
  local cells, n = {}, 0
  for i = 1, #flat, 2 do
    local field, value = flat[i], flat[i + 1]
    if isMoments(field) then
      local base, list = listOf(field, value)
      eachMoment(base, list or '', function(time, count, at)
        n = n + 1
        cells[n] = {time, 1, count, field, count, at}
      end)
    else
      local start, width = cell(field)
      if start and string.find(value, '^%-?%d+$') then
        n = n + 1
        cells[n] = {start, width, tonumber(value), field, value}
      end
    end
  end
  return cells
end

-- negated returns a number in digits with the other sign.
local function negated(n) return (string.gsub('-' .. n, '^%-%-', '')) end

-- without returns what remains of the fields that list moments once some cells are gone: for each
-- that changes, its name and its new value, which is empty if nothing remains. They include the
-- field o, which says how many moments there are.
local function without(flat, gone)
  local left, lists, total, changes = {}, {}, 0, {}
  for _, c in ipairs(gone) do
    if c[6] then
      left[c[4]] = left[c[4]] or {}
      left[c[4]][c[6]] = true
    end
  end
  if not next(left) then return changes end
  for i = 1, #flat, 2 do
    local base, list = nil, nil
    if isMoments(flat[i]) then base, list = listOf(flat[i], flat[i + 1]) end
    local dropped, kept = left[flat[i]], {}
    if base and dropped then
      for at = 1, #list, 4 do
        if not dropped[at] then kept[#kept + 1] = sub(list, at, at + 3) end
      end
      list = table.concat(kept)
    end
    if base then
      if flat[i] ~= OPEN then total = total + #list / 4 end
      lists[flat[i]] = {list, flat[i + 1]}
    end
  end
  for field, l in pairs(lists) do
    if field == OPEN then
      changes[field] = total + #l[1] > 0 and headOf(baseAt(l[2], 1), total) .. l[1] or ''
    elseif left[field] then
      changes[field] = l[1]
    end
  end
  return changes
end

-- remove deletes cells of a key whose fields and values are flat. It returns false if Redis
-- refuses, and has deleted none.
local function remove(key, flat, gone, ttl)
  local sets, olds, names, lists = {}, {}, {}, without(flat, gone)
  for i = 1, #flat, 2 do
    local value = lists[flat[i]]
    if value == '' then
      names[#names + 1] = flat[i]
    elseif value then
      sets[#sets + 1], sets[#sets + 2] = flat[i], value
      olds[#olds + 1], olds[#olds + 2] = flat[i], flat[i + 1]
    end
  end
  for _, c in ipairs(gone) do
    if not c[6] then names[#names + 1] = c[4] end
  end
  if #sets > ATONCE or #sets > 0 and type(put(key, ttl, unpack(sets))) == 'table' then
    return false
  end
  for i = 1, #names, 1000 do -- Lua can't unpack more than about 8,000 at a time
    local done = redis.pcall(HDEL, key, unpack(names, i, math.min(i + 999, #names)))
    if type(done) == 'table' then
      if #olds > 0 then put(key, ttl, unpack(olds)) end
      return i > 1
    end
  end
  return true
end

-- move adds up the cells of a list in the bucket of a field. What it has added is appended to
-- added, and the cells to gone. A cell that Redis refuses to add stays.
local function move(key, into, cells, ttl, added, gone)
  local sum = 0
  for i = 1, #cells do sum = sum + cells[i][3] end
  if #cells > 1 and math.abs(sum) > 2 ^ 53 then -- which is not exact
    for i = 1, #cells do move(key, into, {cells[i]}, ttl, added, gone) end
    return
  end
  local n = #cells == 1 and cells[1][5] or string.format('%.0f', sum)
  if sum ~= 0 then
    if type(add(key, into, n, ttl)) == 'table' then return end
    added[#added + 1], added[#added + 2] = into, n
  end
  for i = 1, #cells do gone[#gone + 1] = cells[i] end
end

-- fold moves the cells of a key that are too old for their width into wider ones, and deletes those
-- that have left every window, as Ladder.ListFolds of leaparray does. flat, if there is one, is the
-- flat list of the key's fields and values. exact is the moment from which on cells stay as they
-- are: nil or 0 if it has to be found out, which takes most of the time. What was added to wider
-- cells is taken back if Redis refuses to delete the others.
local function fold(key, ladder, now, flat, exact)
  flat = flat or redis.pcall(HGETALL, key)
  if flat.err then return end
  local cells = cellsOf(flat)
  if (exact or 0) == 0 then exact = exactFrom(ladder, byEnd(cells)) end
  local since, gone, added, moved = sinceOf(ladder, now), {}, {}, {}
  local last, lastStart, lastWidth
  for i = 1, #cells do
    local c = cells[i]
    local into, wide = foldInto(ladder, since, c[1], c[2], now, exact)
    if into and not wide then
      gone[#gone + 1] = c
    elseif into then
      -- Cells are mostly in the order of time, so most go where the last one went.
      if into ~= lastStart or wide ~= lastWidth then
        local name = nameOf(into, wide)
        last, lastStart, lastWidth = moved[name] or {}, into, wide
        moved[name] = last
      end
      last[#last + 1] = c
    end
  end
  for name, list in pairs(moved) do move(key, name, list, ladder.ttl, added, gone) end
  if #gone > 0 and not remove(key, flat, gone, ladder.ttl) then
    for i = 1, #added, 2 do add(key, added[i], negated(added[i + 1]), ladder.ttl) end
  end
end

-- ladderOf reads a ladder from a list of numbers, from position first to last: most, exact, ttl,
-- then width and count of each level.
local function ladderOf(list, first, last)
  local ladder = {most = list[first], exact = list[first + 1],
    ttl = string.format('%.0f', list[first + 2]), width = {}, count = {}}
  for i = first + 3, last, 2 do
    local n = #ladder.width + 1
    ladder.width[n], ladder.count[n] = list[i], list[i + 1]
  end
  return ladder
end
