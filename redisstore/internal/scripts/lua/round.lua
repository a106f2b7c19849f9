-- Rounds of several partitions, applied one after the other.
--
-- KEYS of each: sequence of the writer, state of the partition, then one hash for each key.
--
-- ARGV: the ladders; the number of parts, which say what is done with one key or with several, then
-- for each part: flags (1 reset, 2 load, 4 believed to be new, 8 renew, 16 fold, plus 32 times the
-- position of its ladder or 0), ttl, number of adds, what is added if that is 1, or minus the number
-- of adds if they come as a payload of RESTORE, and if it folds, the moment from which on cells stay
-- as they are, 0 if that depends on what is there; then for each round: number of keys, sequence, nonce,
-- acknowledged, ttl of the sequence, epoch or 0, version, quieted, last change or '', the change
-- that this one is, quiet (0 or 1), the present, hashes for the list of keys, their longest ttl, then
-- for each key the number of its part and the adds (field, delta), or only the field if the part has
-- the delta, or the payload.
--
-- Reply for each: {status, version, quieted, epoch, last change} and, if the status is 0 or 3,
-- {position, error, ...}, {position, loaded fields, ...}, {positions of keys believed to be new
-- whose values follow, as -1 - position if they certainly existed}, value of every add of other keys
-- and of these ...; or an error. The status is 1 for a loss, 2 if another round has used this
-- sequence, 3 if a later one was applied, 4 if nothing was there of the partition. The reply to a
-- status of 4 is that to 0.

local call, try = redis.call, redis.pcall

-- eventsOf returns the adds (field, delta) of a payload. It matches layout.Payload in Go.
local function eventsOf(payload)
  local adds = {}
  for at = 9, #payload - 11, 12 do
    local time = 0
    for b = at + 8, at + 1, -1 do time = time * 256 + string.byte(payload, b) end
    adds[#adds + 1] = string.format('%.0f', time)
    adds[#adds + 1] = tostring(string.byte(payload, at + 10))
  end
  return adds
end

-- addsOf returns the adds (field, delta) of a key whose arguments begin at ARGV[at].
local function addsOf(part, at)
  if part.payload then return eventsOf(ARGV[at]) end
  if part.delta then return {ARGV[at], part.delta} end
  local adds = {}
  for i = 1, part.args do adds[i] = ARGV[at + i - 1] end
  return adds
end

-- undo takes back the first n adds of a key. Values that were seen stay.
local function undo(key, part, adds, n)
  if isValue(adds[1]) then return end
  for j = 1, 2 * n, 2 do
    if tonumber(add(key, adds[j], negated(adds[j + 1]), part.ttl)) == 0 then
      try(HDEL, key, adds[j])
    end
  end
end

-- finish sets the time to live of a key after n adds, of which new made new fields, if they have made
-- the key, so that it has no other fields, or if its part says so. It returns an error text if it
-- can't, or nil and the number of fields, which is nil if nobody needs it.
local function finish(key, part, n, new)
  local size, made = nil, false
  if n > 0 or part.load then
    size = try(HLEN, key)
    if type(size) == 'table' then return size.err end
    made = size > 0 and size == new
  end
  if (made or part.renew) and part.ttl ~= '0' then
    local done = try('PEXPIRE', key, part.ttl)
    if type(done) == 'table' then return done.err end
  end
  return nil, size
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

-- readParts reads the parts from ARGV[p] on. The table that it returns has each part under its
-- number as the keys of a round name it, in digits. It also returns where the parts end.
local function readParts(p, lists)
  local parts = {}
  for i = 1, tonumber(ARGV[p]) do
    local adds = tonumber(ARGV[p + 3])
    local reset, load, new, renew, folds, ladder = flagsOf(ARGV[p + 1], lists)
    local part = {
      reset = reset, load = load, new = new, renew = renew, fold = folds, ladder = ladder,
      ttl = ARGV[p + 2], adds = adds, args = 2 * adds,
    }
    p = p + 3
    if adds == 1 then
      p = p + 1
      part.delta, part.n, part.args = ARGV[p], tonumber(ARGV[p]), 1
      -- Whether all there is to do is to count once in a key: nearly always.
      part.once = HINCR and not (reset or load or new or folds)
    elseif adds > 1 then
      part.several = HINCR and adds <= 1000 and not (reset or load or new)
    elseif adds < 0 then
      part.payload, part.adds, part.args = true, -adds, 1
      local now = call('TIME')
      part.ends = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + part.ttl)
    end
    if folds then
      p = p + 1
      part.exact = tonumber(ARGV[p])
    end
    parts[tostring(i)] = part
  end
  return parts, p + 1
end

local lists, p = ladders(1)
local parts
parts, p = readParts(p, lists)

-- round applies the round whose n keys begin at k and whose arguments begin at p.
local function round(k, n, p)
  local seq, nonce, acked = tonumber(ARGV[p]), ARGV[p + 1], tonumber(ARGV[p + 2])
  local stored, by, kept = progress(KEYS[k])
  local state = call('HMGET', KEYS[k + 1], 'e', 'v', 'q', 'l', 'k')
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
  local begun, empty = epoch == 0, false
  if begun then
    local left = survived(k + 2, k + 1 + n, 1) and version or nil
    local ok, drawn, first = pcall(begin, KEYS[k + 1], 0, left)
    if ok then
      epoch, version, empty = drawn, first, not left and stored == 0
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
    if ARGV[p + 11] ~= '' then list(KEYS[k + 1], state[5], ARGV[p + 11], ARGV[p + 12]) end
    call('SET', KEYS[k], mark, 'PX', ttl)
  elseif acked > 0 then
    try('PEXPIRE', KEYS[k], ttl)
  end
  local refused = stored == seq and refusals(kept) or {}
  local errors, loaded, known = {}, {}, {}
  local status = stored > seq and seq > 0 and 3 or empty and 4 or 0
  local out, o = {status, version, quieted, epoch, last, errors, loaded, known}, 9

  -- tally makes the adds of a key, or reads what is there if the round was applied before. If there
  -- is an error text already, it does neither. It returns an error text, or nil and how many fields
  -- are new. One that held 0 is new too.
  local function tally(key, part, adds, err)
    local new, times = 0, nil
    if fresh and not err and isValue(adds[1]) then
      times, new = see(key, adds, part.ttl)
      if not times then new, err = 0, new end
    end
    for j = 1, 2 * part.adds, 2 do
      local v = 0
      if times then
        v = times[adds[j]]
      elseif not err then
        if fresh then
          v = add(key, adds[j], adds[j + 1], part.ttl)
        else
          v = try(HGET, key, adds[j]) or 0
        end
        if type(v) == 'table' then
          if fresh then undo(key, part, adds, (j - 1) / 2) end
          err = unreadable(v.err, counted)
          v = 0
        else
          v = tonumber(v)
          if v == tonumber(adds[j + 1]) then new = new + 1 end
        end
      end
      out[o], o = v, o + 1
    end
    return err, new
  end

  -- complete does what remains after the adds, of which so many made new fields, and loads the key
  -- at position i if its part says so. It returns an error text if it can't.
  local function complete(i, key, part, adds, new)
    local err, size, flat
    if fresh then err, size = finish(key, part, part.adds, new) end
    -- If the key has no more fields than there are adds, these are all it has. But an add of a
    -- value may have deleted it.
    if part.load and not err and not (size and size <= part.adds and not isValue(adds[1])) then
      flat = try(HGETALL, key)
      if flat.err then flat, err = {}, unreadable(flat.err, counted) end
      loaded[#loaded + 1], loaded[#loaded + 2] = i, flat
    end
    if not fresh then return err end
    if err then
      undo(key, part, adds, part.adds)
    elseif part.new and part.adds > 0 and size > new then
      known[#known] = -1 - i
    end
    if not err and part.ladder and new > 0 and size > part.ladder.most then
      foldBy(key, part.ladder, ARGV[p + 10], flat)
    end
    return err
  end

  -- apply does what a part says with the key at position i, whose arguments begin at ARGV[at]. It
  -- returns an error text if it can't.
  local function apply(i, key, part, at)
    local err, new
    local adds = addsOf(part, at)
    if part.new then known[#known + 1] = i end
    if refused[i] then
      err = 'ERR it was refused when this round was carried out'
    elseif fresh and part.reset then
      err = forget(key, epoch, ttl)
    elseif fresh and part.fold and part.ladder then
      foldBy(key, part.ladder, ARGV[p + 10], nil, part.exact)
    end
    err, new = tally(key, part, adds, err)
    return err or complete(i, key, part, adds, new)
  end

  -- countSeveral makes several adds in a key that is known, with one command that reads the fields and
  -- one that writes them: less work than an HINCRBY for each. It returns how many fields are new, or
  -- nil if it has changed nothing, because it can't.
  local function countSeveral(key, part, at)
    local n, fields, sets, new, seen = part.adds, {}, {}, 0, {}
    for i = 1, n do
      local field = ARGV[at + 2 * i - 2]
      if seen[field] then return nil end -- HSET would keep the last of them alone
      fields[i], seen[field] = field, true
    end
    if part.fold and part.ladder then
      foldBy(key, part.ladder, ARGV[p + 10], nil, part.exact)
    end
    local held = try('HMGET', key, unpack(fields))
    if held.err then return nil end
    for i = 1, n do
      local sum = ARGV[at + 2 * i - 1]
      local delta = sum
      if held[i] then
        if not string.find(held[i], '^%-?%d+$') then return nil end
        sum = held[i] + sum
        if math.abs(sum) >= 2 ^ 53 then return nil end -- which is not exact
        sum = string.format('%.0f', sum)
      end
      if tonumber(sum) == tonumber(delta) then new = new + 1 end -- as in tally
      sets[2 * i - 1], sets[2 * i] = fields[i], sum
    end
    if type(try('HSET', key, unpack(sets))) == 'table' then return nil end
    for i = 1, n do out[o + i - 1] = tonumber(sets[2 * i]) end
    o = o + n
    return new
  end

  -- quick does the three things that are done most: it makes a key that is new, of which there is
  -- nothing to tell, or counts once or several times in one that is known. It reports false if apply
  -- has to say why it can't.
  local function quick(key, part, at)
    if part.payload then
      return not try('RESTORE', key, part.ends, ARGV[at], 'ABSTTL').err
    end
    local new = 0
    if isValue(ARGV[at]) then
      return false
    elseif part.once then
      local v = try(HINCR, key, ARGV[at], part.delta)
      if type(v) == 'table' then return false end
      out[o], o = v, o + 1
      if v == part.n then new = 1 end
    elseif part.several then
      new = countSeveral(key, part, at)
      if not new then return false end
    else
      return false
    end
    local size, done = 0, nil
    if new > 0 then
      size = try(HLEN, key)
      done = size
    end
    if type(size) ~= 'table' and part.ttl ~= '0' and
      (part.renew or size > 0 and size == new and new == part.adds) then
      done = try('PEXPIRE', key, part.ttl)
    end
    if type(done) == 'table' then
      undo(key, part, addsOf(part, at), part.adds)
      o = o - part.adds
      return false
    end
    if part.ladder and size > part.ladder.most then foldBy(key, part.ladder, ARGV[p + 10]) end
    return true
  end

  local at = p + 13
  for i = 0, n - 1 do
    local key, part = KEYS[k + 2 + i], parts[ARGV[at]]
    at = at + 1
    if not (fresh and quick(key, part, at)) then
      local err = apply(i, key, part, at)
      if err then errors[#errors + 1], errors[#errors + 2] = i, err end
    end
    at = at + part.args
  end
  if fresh and #errors > 0 then
    local positions = {}
    for i = 1, #errors, 2 do positions[#positions + 1] = errors[i] end
    try('SET', KEYS[k], mark .. ':' .. table.concat(positions, ','), 'PX', ttl)
  end
  return out, at
end

local replies, k = {}, 1
while k <= #KEYS do
  local n = tonumber(ARGV[p])
  -- If one round is refused, for lack of memory for example, that happens before it has written
  -- anything, and doesn't affect the others.
  local ok, reply, after = pcall(round, k, n, p + 1)
  if not ok then
    reply = redis.error_reply(type(reply) == 'table' and reply.err or tostring(reply))
  end
  replies[#replies + 1] = reply
  k = k + 2 + n
  if not after then -- it was not applied
    after = p + 14
    for _ = 1, n do after = after + 1 + parts[ARGV[after]].args end
  end
  p = after
end
return replies
