-- Operations carried out in Redis alone, one after the other. KEYS: sequence of the sender, then the hash of every check, then
-- versions. ARGV: the sequence, its ttl, and a MessagePack array of numbers, which costs much less than as many arguments:
-- number of ladders, the ladders (number of levels, then width, span and keep of each), number of plans, the plans (ladder, ttl,
-- number of limits, then window and max of each), number of operations, the operations (acquire or add (1 or 0), count even
-- if denied (1 or 0), time, number of checks, then position of the version, plan and n of each).
-- Reply: a MessagePack array: whether the sequence was known, then for each operation 2 and an error, or whether it is allowed
-- (1 or 0) and its checks: of an acquire, count, bucket width and retry after (or 0 or -1) for each limit; of an add, how many buckets
-- there are, and the field and the count of each.
local call, try, floor, format = redis.call, redis.pcall, math.floor, string.format
local KEYS = KEYS
local last, verdicts = 0, ''
local kept = call('GET', KEYS[1])
if kept then
  local colon = string.find(kept, ':', 1, true)
  last, verdicts = tonumber(string.sub(kept, 1, colon - 1)), string.sub(kept, colon + 1)
end
local repeated = tonumber(ARGV[1]) <= last

-- What is read and written is nearly always the same few fields and small numbers: each is converted once.
local fields = setmetatable({}, {__index = function(t, s)
  local f = tonumber(s) or -1
  t[s] = f
  return f
end})
local counts = setmetatable({}, {__index = function(t, s)
  -- What HINCRBY would refuse, and what a number of Lua can't hold, is no count.
  local n = s == '0' and 0 or string.find(s, '^%-?[1-9]%d*$') and #s < 16 and tonumber(s)
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

local ladders, plans = {}, {}
for i = 1, num() do
  local l = {levels = num(), most = 0, width = {}, span = {}, keep = {}}
  for j = 1, l.levels do
    l.width[j], l.span[j], l.keep[j] = num(), num(), num()
    l.most = l.most + l.keep[j] + 1
  end
  ladders[i] = l
end
for i = 1, num() do
  local p = {ladder = ladders[num()], ttl = num(), limits = num(), window = {}, max = {}, level = {}, stamp = 0,
    oldest = {}, present = {}, name = {}}
  for j = 1, p.limits do
    p.window[j], p.max[j] = num(), num()
    local level = 1
    while p.ladder.span[level] < p.window[j] do level = level + 1 end
    p.level[j] = level
  end
  plans[i] = p
end

-- A hash is a flat list of fields and counts, as numbers: a table for each level would take longer to make than to do without.
-- A field that is no bucket is -1, which is of no level.
local hashes, touched = {}, {}

-- load reads a hash once. It returns whether it had been read before, too.
local function load(key)
  local h = hashes[key]
  if h then return h, true end
  h = try(HGETALL, key)
  if h.err then return nil, false, h.err end
  local many = #h > 40 -- then most fields are its own: looking them up takes longer
  for i = 1, #h, 2 do
    local f, n = h[i], counts[h[i + 1]]
    if many then f = tonumber(f) or -1 else f = fields[f] end
    if not n then
      h.odd = true
      f, n = -1, 0
    end
    h[i], h[i + 1] = f, n
  end
  hashes[key] = h
  return h, false
end

-- The plan of the check at hand, and what is in it: the fields of the present buckets, and those of the oldest that each
-- limit sums. Its stamp changes with them.
local current, ladder, levels, limits, window, max, level, oldest, present
local function follow(plan, ts)
  if plan ~= current then
    current, ladder, limits = plan, plan.ladder, plan.limits
    window, max, level, oldest, present = plan.window, plan.max, plan.level, plan.oldest, plan.present
    levels = ladder.levels
  end
  if plan.ts == ts then return end
  plan.ts = ts
  for l = 1, levels do
    local f = floor(ts / ladder.width[l]) * 10 + l - 1
    if f ~= present[l] then
      present[l], plan.name[l], plan.stamp = f, digits[f], plan.stamp + 1
    end
  end
  for j = 1, limits do
    local f = floor((ts - window[j] + 1) / ladder.width[level[j]]) * 10 + level[j] - 1
    if f ~= oldest[j] then
      oldest[j], plan.stamp = f, plan.stamp + 1
    end
  end
end

-- look goes through a hash. It finds where in it the present buckets are (0 for none) and sums the window of every limit,
-- oldest buckets included. If a bucket is newer than ts then the sums are not what decides: newest is false. What is found
-- in a hash that is asked for again is kept with it: busy keys have many buckets and come often.
local firstAt, firstSums = {}, {}
local at, sums, newest, seen, memo
local function look(h, plan, ts, again)
  follow(plan, ts)
  seen, memo = h, h.memo
  if memo then
    at, sums = memo.at, memo.sums
    if memo.plan == plan and memo.stamp == plan.stamp then
      newest = memo.newest
      return
    end
  elseif again then
    at, sums = {}, {}
    memo = {at = at, sums = sums, free = {}}
    h.memo = memo
  else
    at, sums = firstAt, firstSums
  end
  for l = 1, levels do at[l] = 0 end
  for j = 1, limits do sums[j] = 0 end
  newest = true
  for i = 1, #h, 2 do
    local f = h[i]
    local l = f % 10 + 1
    local now = present[l]
    if now then
      if f == now then at[l] = i + 1 elseif f > now then newest = false end
      for j = 1, limits do
        if level[j] == l and f >= oldest[j] then sums[j] = sums[j] + h[i + 1] end
      end
    end
  end
  if memo then memo.plan, memo.stamp, memo.newest, memo.n = plan, plan.stamp, newest, nil end
end

local function sum(h, level, lo, hi)
  local s = 0
  for i = 1, #h, 2 do
    local f = h[i]
    if f % 10 + 1 == level then
      local idx = (f - level + 1) / 10
      if idx >= lo and idx <= hi then s = s + h[i + 1] end
    end
  end
  return s
end

local function head(h, level)
  local newest = -1
  for i = 1, #h, 2 do
    local f = h[i]
    if f % 10 + 1 == level then newest = math.max(newest, (f - level + 1) / 10) end
  end
  return newest
end

-- peak is the largest sum, oldest buckets included, of a window of this length that contains ts. It returns nil if no
-- level holds all of it.
local function peak(h, ladder, window, ts)
  for level = 1, ladder.levels do
    local width, newest = ladder.width[level], head(h, level)
    local lo = floor((ts - window + 1) / width)
    if ladder.span[level] >= window and lo >= newest - ladder.keep[level] then
      local hi = floor(ts / width)
      local p = sum(h, level, lo, hi)
      for e = hi + 1, math.min(newest, floor((ts + window - 1) / width)) do
        p = math.max(p, sum(h, level, floor((e * width - window + 1) / width), e))
      end
      return p, level, lo, math.max(hi, newest)
    end
  end
end

-- free is the first of the buckets from lo to hi that has to be too old for n to fit, of which there are left now.
local function free(h, level, lo, hi, left, n, max)
  if left + n <= max then return lo end
  local all, before, ordered, found = left, lo, true, nil
  for i = 1, #h, 2 do
    local f = h[i]
    if f % 10 + 1 == level then
      local idx = (f - level + 1) / 10
      if idx >= lo and idx <= hi then
        ordered = ordered and idx >= before
        before, left = idx, left - h[i + 1]
        if not found and left + n <= max then found = idx end
      end
    end
  end
  if ordered then return found end
  local bucket = {}
  for i = 1, #h, 2 do
    if h[i] % 10 + 1 == level then bucket[(h[i] - level + 1) / 10] = h[i + 1] end
  end
  for idx = lo, hi do
    all = all - (bucket[idx] or 0)
    if all + n <= max then return idx end
  end
end

-- retry is how long it takes until n fits.
local function retry(idx, width, window, ts, n, max)
  if n > max then return -1 end
  return idx and math.max(1, (idx + 1) * width + window - 1 - ts) or window
end

-- extend has the key live until no window can reach it any more.
local function extend(key, plan)
  if not plan.ends then
    local now = call('TIME')
    plan.ends = digits[now[1] * 1000 + floor(now[2] / 1000) + plan.ttl]
  end
  call('PEXPIREAT', key, plan.ends) -- PEXPIRE takes longer: it has to be rewritten for replicas
end

-- purge deletes the buckets that have fallen behind the newest.
local function purge(key, ladder)
  local flat, gone = call(HGETALL, key), {}
  local newest = {}
  for pass = 1, 2 do
    for i = 1, #flat, 2 do
      local f = fields[flat[i]]
      local level = f % 10 + 1
      if ladder.width[level] then
        local idx = (f - level + 1) / 10
        if pass == 1 then
          newest[level] = math.max(newest[level] or 0, idx)
        elseif idx < newest[level] - ladder.keep[level] then
          gone[#gone + 1] = flat[i]
        end
      end
    end
  end
  for i = 1, #gone, 1000 do call(HDEL, key, unpack(gone, i, math.min(i + 999, #gone))) end
end

-- each adds n to the bucket of every level, one by one. It returns an error text if the key refuses.
local function each(key, h, plan, n, ts)
  local ladder = plan.ladder
  if h then h.memo = nil end
  for level = 1, ladder.levels do
    local idx = floor(ts / ladder.width[level])
    local d, f = n, idx * 10 + level - 1
    local field = digits[f]
    if n < 0 then d = -math.min(-n, math.max(0, tonumber(try(HGET, key, field) or 0) or 0)) end
    if h and idx < head(h, level) - ladder.keep[level] then d = 0 end
    if d ~= 0 then
      local v = add(key, field, digits[d], digits[ladder.span[level] + ladder.width[level] + 2000])
      if type(v) == 'table' then return v.err end
      v = tonumber(v)
      if h then
        local i = 1
        while h[i] and h[i] ~= f do i = i + 2 end
        h[i], h[i + 1] = f, v
      end
      if v == d and level == ladder.levels then extend(key, plan) end
      if v == d and level == 1 and call(HLEN, key) > ladder.most then purge(key, ladder) end
    end
  end
end

-- count adds n to the bucket of every level: in one command if it is known what is there and nothing is newer.
local written = {}
local function count(key, version, plan, n, ts)
  if not touched[version] then
    touched[version] = true
    if call('HINCRBY', KEYS[version], 'v', '1') == 1 then begin(KEYS[version]) end
  end
  local h = hashes[key]
  if h and seen ~= h then look(h, plan, ts, true) end
  seen = nil
  if not HSET or not h or h.odd or not newest or n < 0 then return each(key, h, plan, n, ts) end
  local v, first = n, nil
  for l = 1, levels do
    local i = at[l]
    if i == 0 then
      i, v = #h + 2, n
      h[i - 1], at[l] = present[l], i
    else
      v = h[i] + n
    end
    h[i] = v
    if l == 1 then first = v end
    written[2 * l - 1], written[2 * l] = plan.name[l], digits[v]
  end
  if memo then
    memo.n = nil
    for j = 1, limits do sums[j] = sums[j] + n end
  end
  local done = try(HSET, key, unpack(written, 1, 2 * levels))
  if type(done) == 'table' then
    hashes[key] = nil
    return done.err
  end
  if v == n then extend(key, plan) end
  if first == n and #h > 2 * ladder.most then purge(key, ladder) end
end

local out, o = {repeated and 1 or 0}, 1

-- judge compares all limits of a check with what is there and n. It returns whether they hold, or nil and an error text.
local function judge(acquire, h, plan, ts, n, position, again)
  look(h, plan, ts, again)
  if not acquire and newest then return true end
  local held, known = true, memo and memo.n == n
  for j = 1, limits do
    local window, max, p, level, lo, hi = window[j], max[j], sums[j], level[j], nil, nil
    if not newest then
      p, level, lo, hi = peak(h, ladder, window, ts)
      if not p then return nil, 'OUTOFREACH ' .. position .. ' ' .. digits[window] end
    end
    if acquire then
      local wait, width = 0, ladder.width[level]
      if p + n > max then
        held = false
        local idx
        if not newest then
          idx = free(h, level, lo, hi, sum(h, level, lo, hi), n, max)
        elseif known then
          idx = memo.free[j]
        else
          idx = free(h, level, (oldest[j] - level + 1) / 10, (present[level] - level + 1) / 10, p, n, max)
        end
        if memo then memo.free[j] = idx end
        wait = retry(idx, width, window, ts, n, max)
      end
      out[o + 1], out[o + 2], out[o + 3] = p, width, wait
      o = o + 3
    end
  end
  if memo then memo.n = n end
  return held
end

-- tell appends a hash as it is now.
local function tell(h, ladder)
  local size, n = o + 1, 0
  o = size
  for i = 1, #h, 2 do
    if ladder.width[h[i] % 10 + 1] then
      out[o + 1], out[o + 2] = h[i], h[i + 1]
      o, n = o + 2, n + 1
    end
  end
  out[size] = n
end

local key = 1 -- the last of KEYS that is used up

-- complete appends what is there after an add, and stands in for what could not be found a second time.
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

local decided = {}
for op = 1, num() do
  local acquire, always, ts, checks = args[a + 1] == 1, args[a + 2] == 1, args[a + 3], args[a + 4]
  a = a + 4
  local allowed, failed, start = true, nil, o + 1
  o, seen = start, nil
  for i = 1, checks do
    local name, plan, n = KEYS[key + i], plans[args[a + 3 * i - 1]], args[a + 3 * i]
    if acquire or plan.limits > 0 then
      local h, again, held
      h, again, failed = load(name)
      if failed then break end
      for j = 1, i - 1 do
        if KEYS[key + j] == name then n = n + args[a + 3 * j] end
      end
      held, failed = judge(acquire, h, plan, ts, n, i, again)
      if failed then break end
      allowed = allowed and held
    end
  end
  if repeated then
    local verdict = string.sub(verdicts, op, op)
    if verdict == 'e' then failed = failed or 'ERR refused before' else failed = nil end
    allowed = verdict == '1'
  elseif not failed and (allowed or always) then
    for i = 1, checks do
      local c = a + 3 * i
      failed = failed or count(KEYS[key + i], args[c - 2], plans[args[c - 1]], args[c], ts)
    end
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
if not repeated then
  call('SET', KEYS[1], ARGV[1] .. ':' .. table.concat(decided), 'PX', ARGV[2])
end
return cmsgpack.pack(out)
