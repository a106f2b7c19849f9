-- Rounds of several partitions, applied one after the other.
--
-- KEYS of each: sequence of the writer, state of the partition, then one hash for each key.
--
-- ARGV: the ladders, then for each round: number of keys, sequence, nonce, acknowledged, ttl of the
-- sequence, epoch or 0, version, quieted, last change or '', the change that this one is, quiet (0
-- or 1), then for each key: flags (1 reset, 2 load, 4 believed to be new, plus 8 times the position
-- of its ladder or 0), ttl or 0, number of adds, number of expired fields, the adds (field, delta[,
-- ttl of the field]), the expired fields.
--
-- Reply for each: {status, version, quieted, epoch, last change} and, if the status is 0 or 3,
-- {position, error, ...}, {position, loaded fields, ...}, {positions of keys that were not new
-- though believed to be}, value of every add of keys that were not new ...; or an error. The status
-- is 1 for a loss, 2 if another round has used this sequence, 3 if a later one was applied.

local call, try = redis.call, redis.pcall

-- undo takes back the first n of the adds from ARGV[a] on.
local function undo(key, a, n)
  for at = a, a + (n - 1) * WIDTH, WIDTH do
    local back = string.gsub('-' .. ARGV[at + 1], '^%-%-', '')
    if tonumber(add(key, ARGV[at], back, ARGV[at + 2])) == 0 then try(HDEL, key, ARGV[at]) end
  end
end

-- finish does what remains to be done with a key after its adds: it deletes n expired fields from
-- ARGV[a] on and whatever else the key no longer needs, and sets its time to live. It returns an
-- error text if it can't, or nil and whether anything was purged.
local function finish(key, a, n, keep, ttl)
  if n > 0 then discard(key, ARGV, a, a + n - 1) end
  local purged = keep and purge(key, keep)
  if ttl ~= '0' then
    local done = try('PEXPIRE', key, ttl)
    if type(done) == 'table' then return done.err end
  end
  return nil, purged
end

-- read returns all fields of a key, false if these can only be the adds, or nil and an error text.
local function read(key, adds)
  local n = try(HLEN, key)
  if type(n) == 'table' then return nil, n.err end
  if n <= adds then return false end
  local flat = try(HGETALL, key)
  if flat.err then return nil, flat.err end
  return flat
end

-- unreadable returns the error text for a key that can't be read. If the key was counted when its
-- round was applied, it must not be reported as refused: either something else is there now, or the
-- whole round has to be sent once more.
local function unreadable(err, counted)
  if not counted then return err end
  if not string.find(err, '^WRONGTYPE ') then error({err = err}, 0) end
end

-- refusals returns the positions of the keys that were refused when the round was applied. If the
-- round is sent again, the reply must say so again, whatever has become of these keys.
local function refusals(kept)
  local refused = {}
  for position in string.gmatch(string.match(kept, ':(.*)') or '', '%d+') do
    refused[tonumber(position)] = true
  end
  return refused
end

local lists, p = ladders(1)

-- round applies the round whose keys begin at k and whose arguments begin at p.
local function round(k, n, p)
  local seq, nonce, acked = tonumber(ARGV[p]), ARGV[p + 1], tonumber(ARGV[p + 2])
  local stored, by, kept = progress(KEYS[k])
  local state = call('HMGET', KEYS[k + 1], 'e', 'v', 'q', 'l')
  local epoch, version = tonumber(state[1] or '0'), tonumber(state[2] or '0')
  local quieted, last = tonumber(state[3] or '0'), state[4] or ''
  local expected = tonumber(ARGV[p + 4])
  if stored < acked or expected ~= 0 and
    (expected ~= epoch or version < tonumber(ARGV[p + 5]) or quieted < tonumber(ARGV[p + 6]) or
    lacks(ARGV[p + 7], last)) then
    return {1, version, quieted, epoch, last}
  end
  if seq > 0 and stored == seq and by ~= nonce then return {2, version, quieted, epoch, last} end
  local fresh, ttl = seq > stored, ARGV[p + 3]
  local counted = not fresh and seq > 0
  local mark = ARGV[p] .. '.' .. nonce
  -- If Redis refuses to write, it does so here, before anything is counted. Once the sequence is
  -- stored, every failure must be caught: the round would be taken as applied.
  local begun = epoch == 0
  if begun then
    local left = survived(k + 2, k + 1 + n, 1) and version or nil
    local ok, drawn, first = pcall(begin, KEYS[k + 1], 0, left)
    if ok then
      epoch, version = drawn, first
    elseif fresh then
      error(drawn, 0)
    end
  end
  if fresh then
    last = ARGV[p + 8]
    if ARGV[p + 9] == '1' then
      quieted = quieted + 1
      call('HSET', KEYS[k + 1], 'q', quieted, 'l', last)
    else
      version = begun and version or version + 1
      call('HSET', KEYS[k + 1], 'v', version, 'l', last)
    end
    call('SET', KEYS[k], mark, 'PX', ttl)
  elseif acked > 0 then
    try('PEXPIRE', KEYS[k], ttl)
  end
  local refused = stored == seq and refusals(kept) or {}
  local errors, loaded, known = {}, {}, {}
  local status = stored > seq and seq > 0 and 3 or 0
  local out, o = {status, version, quieted, epoch, last, errors, loaded, known}, 9
  local a = p + 10
  for i = 0, n - 1 do
    local key, flags = KEYS[k + 2 + i], tonumber(ARGV[a])
    local adds, expired = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
    local keep, keyTTL = lists[math.floor(flags / 8)], ARGV[a + 1]
    flags, a = flags % 8, a + 4
    local load, err, grown = flags == 2 or flags == 3, nil, false
    if refused[i] then
      err = 'ERR it was refused when this round was carried out'
    elseif fresh and (flags == 1 or flags == 3) then
      err = forget(key, epoch, ttl)
    end
    local first = 1
    if flags == 4 then
      if fresh and WIDTH == 2 and adds > 0 and adds <= 1000 and try('EXISTS', key) == 0 and
        type(try('HSET', key, unpack(ARGV, a, a + 2 * adds - 1))) ~= 'table' then
        first = adds + 1
      else
        known[#known + 1] = i
      end
    end
    for j = first, adds do
      local at, v = a + (j - 1) * WIDTH, 0
      if not err then
        if fresh then
          v = add(key, ARGV[at], ARGV[at + 1], ARGV[at + 2])
        else
          v = try(HGET, key, ARGV[at]) or 0
        end
        if type(v) == 'table' then
          if fresh then undo(key, a, j - 1) end
          err, v = unreadable(v.err, counted), 0
        else
          v = tonumber(v)
          grown = grown or v == tonumber(ARGV[at + 1])
        end
      end
      out[o], o = v, o + 1
    end
    if not err then
      local flat, purged
      if fresh then err, purged = finish(key, a + adds * WIDTH, expired, grown and keep, keyTTL) end
      if load and not err then
        flat, err = read(key, fresh and not purged and adds or -1)
        if err then flat, err = {}, unreadable(err, counted) end
      end
      if err and fresh then undo(key, a, adds) end
      if flat then loaded[#loaded + 1], loaded[#loaded + 2] = i, flat end
    end
    a = a + adds * WIDTH + expired
    if err then errors[#errors + 1], errors[#errors + 2] = i, err end
  end
  if fresh and #errors > 0 then
    local positions = {}
    for i = 1, #errors, 2 do positions[#positions + 1] = errors[i] end
    try('SET', KEYS[k], mark .. ':' .. table.concat(positions, ','), 'PX', ttl)
  end
  return out
end

local replies, k = {}, 1
while k <= #KEYS do
  local n = tonumber(ARGV[p])
  -- If one round is refused, for lack of memory for example, that happens before it has written
  -- anything, and doesn't affect the others.
  local ok, reply = pcall(round, k, n, p + 1)
  if not ok then
    reply = redis.error_reply(type(reply) == 'table' and reply.err or tostring(reply))
  end
  replies[#replies + 1] = reply
  k = k + 2 + n
  p = p + 11
  for _ = 1, n do p = p + 4 + tonumber(ARGV[p + 2]) * WIDTH + tonumber(ARGV[p + 3]) end
end
return replies
