-- Rounds of several partitions, applied one after the other.
--
-- KEYS of each: sequence of the writer, state of the partition, then one hash for each key.
--
-- ARGV: the ladders; the number of parts, which say what is done with one key or with several, then
-- for each part: flags (1 reset, 2 load, 4 believed to be new, 8 renew, 16 fold, plus 32 times the
-- position of its ladder or 0), ttl, number of adds, what is added if that is 1, or minus the
-- number of adds if they come as a payload of RESTORE, and if it folds, the moment from which on
-- cells stay as they are, 0 if that depends on what is there; then for each round: number of keys,
-- sequence, nonce, acknowledged, ttl of the sequence, epoch or 0, version, quieted, last change or
-- '', the change that this one is, quiet (0 or 1), the present, hashes for the list of keys, their
-- longest ttl, then for each key the number of its part and the adds (field, delta), or only the
-- field if the part has the delta, or the payload.
--
-- Reply for each: {status, version, quieted, epoch, last change} and, if the status is 0 or 3,
-- {position, error, ...}, {position, loaded fields, ...}, {positions of keys believed to be new
-- whose values follow, as -1 - position if they certainly existed}, value of every add of other
-- keys and of these that is not of a moment ...; or an error. The status is 1 for a loss, 2 if
-- another round has used this sequence, 3 if a later one was applied, 4 if nothing was there of the
-- partition. The reply to a status of 4 is that to 0.

local call, try, KEYS, ARGV = redis.call, redis.pcall, KEYS, ARGV

-- eventsOf returns the adds (field, delta) of a payload. It matches layout.Payload in Go.
local function eventsOf(payload)
  local adds, text = {}, sub(payload, 13, byte(payload, 12) - 0x80 + 12)
  eachMoment(baseAt(text, 1), sub(text, HEAD + 1), function(time, n)
    adds[#adds + 1], adds[#adds + 2] = string.format('%.0f', time), tostring(n)
  end)
  return adds
end

-- addsOf returns the adds (field, delta) of a key whose arguments begin at ARGV[at].
local function addsOf(part, at)
  if part.payload then return eventsOf(ARGV[at]) end
  if part.delta then return {ARGV[at], part.delta} end
  local adds = {}
  for i = 1, 2 * part.adds do adds[i] = ARGV[at + i - 1] end
  return adds
end

-- unpush removes moments that were just pushed from the lists of a key. It returns a table with the
-- positions of the adds whose moments it has removed.
local function unpush(key, adds, ttl)
  local wanted, gone, removed, flat = {}, {}, {}, try(HGETALL, key)
  for j = 1, #adds, 2 do
    if isPushed(adds[j], adds[j + 1]) then wanted[adds[j]] = j end
  end
  local cells = flat.err and {} or cellsOf(flat)
  for i = #cells, 1, -1 do
    local c = cells[i]
    local field = c[6] and nameOf(c[1], 1)
    local j = field and wanted[field]
    if j and tonumber(adds[j + 1]) == c[3] then
      gone[#gone + 1], removed[j], wanted[field] = c, true, nil
    end
  end
  return #gone > 0 and remove(key, flat, gone, ttl) and removed or {}
end

-- undo takes back the first n adds of a key, with those that were pushed or without. Values that
-- were seen stay.
local function undo(key, part, adds, n, pushed)
  if isValue(adds[1]) then return end
  local removed = pushed and unpush(key, adds, part.ttl) or {}
  for j = 1, 2 * n, 2 do
    if not removed[j] and (pushed or not isPushed(adds[j], adds[j + 1])) and
      tonumber(add(key, adds[j], negated(adds[j + 1]), part.ttl)) == 0 then
      try(HDEL, key, adds[j])
    end
  end
end

-- finish sets the time to live of a key after n adds, of which new made new fields, if they have
-- made the key, so that it has no other fields, or if its part says so. It returns an error text if
-- it can't, or nil, the number of fields, which is nil if nobody needs it, and whether they have
-- made the key.
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
  return nil, size, made
end

-- isCrowded reports whether a key of so many fields has more cells than its ladder needs, if its
-- fields list this many moments, nil if that is not known.
local function isCrowded(key, part, size, listed)
  if not part.ladder then return false end
  if not listed then
    local held = try(HGET, key, OPEN)
    listed = type(held) == 'string' and listedIn(held) or 0
  end
  return size + listed - listed / MOST > part.ladder.most
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
    local reset, load, new, renew, folds, ladder, content = flagsOf(ARGV[p + 1], lists)
    local part = {
      reset = reset, load = load, new = new, renew = renew, fold = folds, ladder = ladder,
      ttl = ARGV[p + 2], adds = adds, args = 2 * adds,
      -- Whether all there is to do is to count in a key: nearly always.
      plain = adds > 0 and not (reset or load or new), content = content,
    }
    p = p + 3
    if adds == 1 then
      p = p + 1
      part.delta, part.args, part.n = ARGV[p], 1, tonumber(ARGV[p])
      part.once = part.plain and not (renew or folds or content) and part.n > 0 and part.n < 256
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

-- sizeOf returns how many arguments a key has, which begin at ARGV[at].
local function sizeOf(part, at)
  return part.args + (part.content and 1 + ARGV[at + part.args] or 0)
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
  local unchanged = expected ~= 0 and version == tonumber(ARGV[p + 5]) and
    quieted == tonumber(ARGV[p + 6])
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

  -- count makes an add of a key, or reads what is there if the round was applied before. It returns
  -- the value, or an error.
  local function count(key, part, field, delta)
    if fresh then return add(key, field, delta, part.ttl) end
    if isMoment(field) then return '0' end
    return try(HGET, key, field) or '0'
  end

  -- tally makes the adds of a key, or reads what is there if the round was applied before. If there
  -- is an error text already, it does neither. It returns an error text, or nil, how many fields
  -- are new, and how many moments are listed, nil if it has added none. A field that held 0 is new
  -- too.
  local function tally(key, part, adds, err)
    local new, moments = 0, {}
    local listed, times
    if fresh and not err and isValue(adds[1]) then
      times, new = see(key, adds, part.ttl)
      if not times then new, err = 0, new end
    end
    for j = 1, 2 * part.adds, 2 do
      local field, delta, v = adds[j], adds[j + 1], 0
      if times then
        v = times[field]
      elseif isPushed(field, delta) then
        moments[#moments + 1], moments[#moments + 2] = field, delta
      elseif not err then
        v = count(key, part, field, delta)
        if type(v) == 'table' then
          if fresh then undo(key, part, adds, (j - 1) / 2) end
          err = unreadable(v.err, counted)
          v = 0
        elseif tonumber(v) == tonumber(delta) then
          new = new + 1
        end
      end
      if not isMoment(field) then out[o], o = tonumber(v), o + 1 end
    end
    if fresh and not err and #moments > 0 then
      local made, n = push(key, moments, 1, #moments, part.ttl)
      if not made then
        undo(key, part, adds, part.adds)
        err = n
      else
        new, listed = new + made, n
      end
    end
    return err, new, listed
  end

  -- complete does what remains after the adds, of which so many made new fields, and loads the key
  -- at position i if its part says so. It returns an error text if it can't.
  local function complete(i, key, part, adds, new, listed)
    local err, size, made, flat
    if fresh then err, size, made = finish(key, part, part.adds, new) end
    -- A key that was just made has nothing but the adds. But an add of a value may have deleted it.
    if part.load and not err and not (made and not isValue(adds[1])) then
      flat = try(HGETALL, key)
      if flat.err then flat, err = {}, unreadable(flat.err, counted) end
      loaded[#loaded + 1], loaded[#loaded + 2] = i, flat
    end
    if not fresh then return err end
    if err then
      undo(key, part, adds, part.adds, true)
    elseif part.new and part.adds > 0 and size > new then
      known[#known] = -1 - i
    end
    if not err and new > 0 and isCrowded(key, part, size, listed) then
      foldBy(key, part.ladder, ARGV[p + 10], flat)
    end
    return err
  end

  -- apply does what a part says with the key at position i, whose arguments begin at ARGV[at]. It
  -- returns an error text if it can't.
  local function apply(i, key, part, at)
    local err, new, listed
    local adds = addsOf(part, at)
    if part.new then known[#known + 1] = i end
    if refused[i] then
      err = 'ERR it was refused when this round was carried out'
    elseif fresh and part.reset then
      err = forget(key, epoch, ttl)
    elseif fresh and part.fold and part.ladder then
      foldBy(key, part.ladder, ARGV[p + 10], nil, part.exact)
    end
    err, new, listed = tally(key, part, adds, err)
    return err or complete(i, key, part, adds, new, listed)
  end

  -- countPlain counts moments in a key, or once in a bucket: nearly all that is ever done. It
  -- returns how many fields are new, nil if it has counted nothing, and how many moments are
  -- listed.
  local function countPlain(key, part, at)
    local adds, first, last = ARGV, at, at + part.args - 1
    if part.delta then adds, first, last = {ARGV[at], part.delta}, 1, 2 end
    if part.fold and part.ladder then
      foldBy(key, part.ladder, ARGV[p + 10], nil, part.exact)
    end
    for i = first, last, 2 do
      if not isPushed(adds[i], adds[i + 1]) then
        if not part.delta or isMoment(ARGV[at]) or isValue(ARGV[at]) then return nil end
        local v = add(key, ARGV[at], part.delta, part.ttl)
        if type(v) == 'table' then return nil end
        out[o], o = v, o + 1
        return v == tonumber(part.delta) and 1 or 0
      end
    end
    return push(key, adds, first, last, part.ttl)
  end

  -- replace replaces the cells of a key by its content. It reports false if it has changed nothing.
  local function replace(key, part, at)
    local sets, kept, gone, first = {}, {}, {}, at + part.args
    local names = try(HKEYS, key)
    if names.err then return false end
    for i = first + 1, first + ARGV[first], 2 do
      sets[#sets + 1], sets[#sets + 2], kept[ARGV[i]] = ARGV[i], ARGV[i + 1], ARGV[i + 1]
    end
    for _, name in ipairs(names) do
      if not kept[name] and (isMoments(name) or cell(name)) then gone[#gone + 1] = name end
    end
    if #sets > ATONCE or #gone > ATONCE or
      #gone > 0 and type(try(HDEL, key, unpack(gone))) == 'table' then
      return false
    end
    if #sets > 0 then put(key, part.ttl, unpack(sets)) end
    if (part.renew or #names == 0) and part.ttl ~= '0' then try('PEXPIRE', key, part.ttl) end
    local adds = addsOf(part, at)
    for i = 1, #adds, 2 do
      if not isMoment(adds[i]) then out[o], o = tonumber(kept[adds[i]] or 0), o + 1 end
    end
    return true
  end

  -- quick does the three things that are done most: it makes a key that is new, of which there is
  -- nothing to tell, or writes or counts in one that is known. It reports false if apply has to say
  -- why it can't.
  local function quick(key, part, at)
    if part.payload then
      return not try('RESTORE', key, part.ends, ARGV[at], 'ABSTTL').err
    end
    if part.once and isMoment(ARGV[at]) then
      local done = pushOne(key, ARGV[at], part.n, part.ttl)
      if done and type(done) ~= 'table' then return true end
    end
    if not part.plain then return false end
    if part.content and unchanged and replace(key, part, at) then return true end
    local before = o
    local new, listed = countPlain(key, part, at)
    if not new then return false end
    local size, done = 0, nil
    if new > 0 then
      size = try(HLEN, key)
      done = size
    end
    if type(size) ~= 'table' and part.ttl ~= '0' and
      (part.renew or size > 0 and size == new) then
      done = try('PEXPIRE', key, part.ttl)
    end
    if type(done) == 'table' then
      undo(key, part, addsOf(part, at), part.adds, true)
      o = before
      return false
    end
    if new > 0 and isCrowded(key, part, size, listed) then foldBy(key, part.ladder, ARGV[p + 10]) end
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
    at = at + sizeOf(part, at)
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
    for _ = 1, n do after = after + 1 + sizeOf(parts[ARGV[after]], after + 1) end
  end
  p = after
end
return replies
