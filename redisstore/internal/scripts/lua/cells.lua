-- A cell of a key is a stretch of time, given by its start and its width in unix milliseconds, and
-- the number of events in it. Its field is a number: the time of an event that keeps its
-- millisecond, or for a bucket minus the number that is written as its index, its width, and the
-- last digit of the number of the width's digits.
--
-- A value of a key has the field v and, after that, the bytes of its hash. What it has is when it
-- was last seen, in unix milliseconds.

-- isValue reports whether a field is that of a value. Those of cells are numbers.
local byte = string.byte
local function isValue(field) return field and byte(field) == 118 end

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
    if sum >= ladder.exact then return from end
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
-- field, value}. Those that have no count are left out.
local function cellsOf(flat)
  local cells, n = {}, 0
  for i = 1, #flat, 2 do
    local start, width = cell(flat[i])
    local value = flat[i + 1]
    if start and string.find(value, '^%-?%d+$') then
      n = n + 1
      cells[n] = {start, width, tonumber(value), flat[i], value}
    end
  end
  return cells
end

-- negated returns a number in digits with the other sign.
local function negated(n) return (string.gsub('-' .. n, '^%-%-', '')) end

-- move adds up the cells of a list in the bucket of a field, and deletes them. Without a field it
-- only deletes them. If Redis refuses either, they stay.
local function move(key, into, cells, ttl)
  local sum, names = 0, {}
  for i = 1, #cells do
    sum, names[i] = sum + cells[i][3], cells[i][4]
  end
  if into and #cells > 1 and math.abs(sum) > 2 ^ 53 then -- which is not exact
    for i = 1, #cells do move(key, into, {cells[i]}, ttl) end
    return
  end
  local n = #cells == 1 and cells[1][5] or string.format('%.0f', sum)
  local adds = into and sum ~= 0
  if adds and type(add(key, into, n, ttl)) == 'table' then return end
  for i = 1, #names, 1000 do -- Lua can't unpack more than about 8,000 at a time
    local gone = redis.pcall(HDEL, key, unpack(names, i, math.min(i + 999, #names)))
    if type(gone) == 'table' then
      if adds then add(key, into, negated(n), ttl) end
      return
    end
  end
end

-- fold moves the cells of a key that are too old for their width into wider ones, and deletes those
-- that have left every window, as Ladder.ListFolds of leaparray does. flat, if there is one, is the
-- flat list of the key's fields and values. exact is the moment from which on cells stay as they
-- are: nil or 0 if it has to be found out, which takes most of the time.
local function fold(key, ladder, now, flat, exact)
  flat = flat or redis.pcall(HGETALL, key)
  if flat.err then return end
  if (exact or 0) == 0 then exact = exactFrom(ladder, byEnd(cellsOf(flat))) end
  local since, gone, moved = sinceOf(ladder, now), {}, {}
  local last, lastStart, lastWidth
  for i = 1, #flat, 2 do
    local start, width = cell(flat[i])
    local into, wide
    if start then into, wide = foldInto(ladder, since, start, width, now, exact) end
    local value = flat[i + 1]
    if into and string.find(value, '^%-?%d+$') then
      local list = gone
      if wide then
        -- Fields are mostly in the order of time, so most cells go where the last one went.
        if into ~= lastStart or wide ~= lastWidth then
          local name = nameOf(into, wide)
          last, lastStart, lastWidth = moved[name] or {}, into, wide
          moved[name] = last
        end
        list = last
      end
      list[#list + 1] = {start, width, tonumber(value), flat[i], value}
    end
  end
  for name, cells in pairs(moved) do move(key, name, cells, ladder.ttl) end
  if #gone > 0 then move(key, nil, gone) end
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
