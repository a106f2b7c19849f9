-- Operations carried out in Redis alone, one after the other. KEYS: sequence of the sender, then hashes and versions.
-- ARGV: sequence, its ttl, number of ladders, the ladders (number of levels, then width, span and keep of each),
-- number of operations, the operations: kind (A add, Q acquire), count even if denied (0 or 1), time, number of checks, the
-- checks: position of the hash, position of the version, n, ladder, ttl, number of limits, the limits (window, max).
-- Reply: one entry for each operation: an error, or {allowed, checks ...}; of an acquire, a check is {for each limit: count,
-- bucket width, retry after or 0 or -1}; of an add it is the hash, or empty if it has no limits.
local seq = tonumber(ARGV[1])
local last, verdicts = 0, ''
local kept = redis.call('GET', KEYS[1])
if kept then
  local colon = string.find(kept, ':', 1, true)
  last, verdicts = tonumber(string.sub(kept, 1, colon - 1)), string.sub(kept, colon + 1)
end
local repeated = seq <= last
local a = 3
local function arg() a = a + 1; return ARGV[a - 1] end
local function num() return tonumber(arg()) end

local ladders = {}
for i = 1, num() do
  local l = {}
  for j = 1, num() do l[j] = {width = num(), span = num(), keep = num()} end
  ladders[i] = l
end

local hashes, touched = {}, {}

-- load reads a hash once: its buckets by level, and the newest of each.
local function load(key, ladder)
  if hashes[key] then return hashes[key] end
  local flat = redis.pcall(HGETALL, key)
  if flat.err then return flat end
  local h = {head = {}}
  for i = 1, #ladder do h[i], h.head[i] = {}, -1 end
  for i = 1, #flat, 2 do
    local f, n = tonumber(flat[i]), tonumber(flat[i + 1])
    if f and n then
      local level = f % 10 + 1
      if level <= #ladder then
        local idx = (f - f % 10) / 10
        h[level][idx] = n
        if idx > h.head[level] then h.head[level] = idx end
      end
    end
  end
  hashes[key] = h
  return h
end

local function sum(h, level, lo, hi)
  local s = 0
  for idx, n in pairs(h[level]) do
    if idx >= lo and idx <= hi then s = s + n end
  end
  return s
end

-- peak is the largest sum, oldest buckets included, of a window of this length that contains ts. It returns nil if no
-- level holds all of it.
local function peak(h, ladder, window, ts)
  for level, l in ipairs(ladder) do
    local lo = math.floor((ts - window + 1) / l.width)
    if l.span >= window and lo >= h.head[level] - l.keep then
      local hi = math.floor(ts / l.width)
      local p = sum(h, level, lo, hi)
      for e = hi + 1, math.min(h.head[level], math.floor((ts + window - 1) / l.width)) do
        p = math.max(p, sum(h, level, math.floor((e * l.width - window + 1) / l.width), e))
      end
      return p, level, lo, hi
    end
  end
end

local function retry(h, l, level, lo, hi, window, ts, n, max)
  if n > max then return -1 end
  local head = math.max(hi, h.head[level])
  local left = sum(h, level, lo, head)
  for i = lo, head do
    left = left - (h[level][i] or 0)
    if left + n <= max then return math.max(1, (i + 1) * l.width + window - 1 - ts) end
  end
  return window
end

local function text(n) return string.format('%.0f', n) end

-- purge deletes the buckets that have fallen behind the newest.
local function purge(key, ladder)
  local flat, gone = redis.call(HGETALL, key), {}
  local head = {}
  for pass = 1, 2 do
    for i = 1, #flat, 2 do
      local f = tonumber(flat[i])
      local level = f and f % 10 + 1
      if level and level <= #ladder then
        local idx = (f - f % 10) / 10
        if pass == 1 then
          head[level] = math.max(head[level] or 0, idx)
        elseif idx < head[level] - ladder[level].keep then
          gone[#gone + 1] = flat[i]
        end
      end
    end
  end
  for i = 1, #gone, 1000 do redis.call(HDEL, key, unpack(gone, i, math.min(i + 999, #gone))) end
end

-- count adds n to the bucket of every level. It returns an error text if the key refuses.
local function count(key, version, ladder, n, ts, ttl)
  if not touched[version] then
    touched[version] = true
    if redis.call('HINCRBY', version, 'v', 1) == 1 then begin(version) end
  end
  local h = hashes[key]
  for level, l in ipairs(ladder) do
    local idx = math.floor(ts / l.width)
    local d, field = n, text(idx * 10 + level - 1)
    if n < 0 then d = -math.min(-n, math.max(0, tonumber(redis.pcall(HGET, key, field) or 0) or 0)) end
    if h and idx < h.head[level] - l.keep then d = 0 end
    if d ~= 0 then
      local v = add(key, field, text(d), text(l.span + l.width + 2000))
      if type(v) == 'table' then return v.err end
      v = tonumber(v)
      if h then
        h[level][idx] = v
        if idx > h.head[level] then h.head[level] = idx end
      end
      if v == d and level == #ladder then redis.call('PEXPIRE', key, ttl) end
      if v == d and level == 1 then
        local most = 0
        for _, x in ipairs(ladder) do most = most + x.keep + 1 end
        if redis.call(HLEN, key) > most then purge(key, ladder) end
      end
    end
  end
end

-- flatten is a hash as HGETALL would give it now.
local function flatten(h)
  local flat = {}
  for level = 1, #h do
    for idx, n in pairs(h[level]) do
      flat[#flat + 1], flat[#flat + 2] = text(idx * 10 + level - 1), text(n)
    end
  end
  return flat
end

-- judge compares all limits of an operation's checks. It returns whether all hold, the answers, and an error text.
local function judge(kind, checks, ts)
  local allowed, answers, failed = true, {}, nil
  for i, c in ipairs(checks) do
    local answer, extra = {}, 0
    local h = (kind == 'Q' or #c > 0) and load(c.key, c.ladder) or {}
    if h.err then return false, answers, h.err end
    for j = 1, i - 1 do
      if checks[j].key == c.key then extra = extra + checks[j].n end
    end
    for _, limit in ipairs(c) do
      local p, level, lo, hi = peak(h, c.ladder, limit.window, ts)
      if not p then return false, answers, 'OUTOFREACH ' .. i .. ' ' .. text(limit.window) end
      local wait = 0
      if p + c.n + extra > limit.max then
        allowed = false
        wait = retry(h, c.ladder[level], level, lo, hi, limit.window, ts, c.n + extra, limit.max)
      end
      answer[#answer + 1] = p
      answer[#answer + 1] = c.ladder[level].width
      answer[#answer + 1] = wait
    end
    answers[i] = answer
  end
  return allowed, answers, failed
end

local out, decided = {}, {}
for o = 1, num() do
  local kind, always, ts = arg(), arg(), num()
  local checks = {}
  for i = 1, num() do
    local c = {key = KEYS[num()], version = KEYS[num()], n = num(), ladder = ladders[num()], ttl = arg()}
    for j = 1, num() do c[j] = {window = num(), max = num()} end
    checks[i] = c
  end
  local allowed, answers, failed = judge(kind, checks, ts)
  if kind == 'A' then allowed = true end
  if repeated then
    local verdict = string.sub(verdicts, o, o)
    if verdict == 'e' then failed = failed or 'ERR refused before' else failed = nil end
    allowed = verdict == '1'
  elseif not failed and (allowed or always == '1') then
    for _, c in ipairs(checks) do
      failed = failed or count(c.key, c.version, c.ladder, c.n, ts, c.ttl)
    end
  end
  decided[o] = failed and 'e' or (allowed and '1' or '0')
  local reply = {allowed and 1 or 0, repeated and 1 or 0}
  for i, c in ipairs(checks) do
    if kind == 'Q' then
      reply[i + 2] = answers[i] or {}
    else
      reply[i + 2] = #c > 0 and hashes[c.key] and flatten(hashes[c.key]) or {}
    end
  end
  out[o] = failed or reply
end
if not repeated then
  redis.call('SET', KEYS[1], ARGV[1] .. ':' .. table.concat(decided), 'PX', ARGV[2])
end
return out
