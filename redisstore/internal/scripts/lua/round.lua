-- Rounds of several partitions, applied one after the other.
--
-- KEYS of each: sequence of the writer, state of the partition, then one hash for each key.
--
-- ARGV: the number of parts, which say what is done with one key or with several, then for each
-- part: flags (1 reset, 2 load, 4 believed to be new, 8 renew, 16 rewrite, 32 counts, 64 the pages
-- come as a payload of RESTORE), ttl, number of values, number of pages, number of pages to delete,
-- how much of the log the pages include (-1 for all of it); then for each round: number of keys,
-- sequence, nonce, acknowledged, ttl of the sequence, epoch or 0, version, quieted, last change or
-- '', the change that this one is, quiet (0 or 1), hashes for the list of keys, their longest ttl,
-- then for each key the number of its part, the values (field, time), and if it counts, what to
-- append to the log, the pages (field, content), and the fields of those to delete.
--
-- The pages of a key are written if they are all that it has afterwards: if it is believed to be
-- new and is, and otherwise if nobody has changed the partition since. Quiet changes may be
-- appended to the log meanwhile: so the rest of a log is kept, and all of it is only dropped if
-- there were no quiet changes either.
--
-- Reply for each: {status, version, quieted, epoch, last change} and, if the status is 0 or 3,
-- {position, error, ...}, {position, loaded fields, ...}, {position that was made although it was
-- to exist, ...}, time of every value ...; or an error. A key is also loaded if its pages were not
-- what it has. The status is 1 for a loss, 2 if another round has used this sequence, 3 if a later
-- one was applied, 4 if nothing was there of the partition. The reply to a status of 4 is that to
-- 0.
local call, try, KEYS, ARGV = redis.call, redis.pcall, KEYS, ARGV

-- unreadable returns the error text for a key that can't be read. If the key was counted when its
-- round was applied, it must not be reported as refused: either something else is there now, or the
-- whole round has to be sent once more.
local function unreadable(err, counted)
  if not counted then return err end
  if not string.find(err, '^WRONGTYPE ') then error({err = err}, 0) end
end

-- readParts reads the parts. The table that it returns has each part under its number as the keys
-- of a round name it, in digits. It also returns where the parts end.
local function readParts()
  local parts, p, now = {}, 2, call('TIME')
  now = now[1] * 1000 + math.floor(now[2] / 1000)
  for i = 1, tonumber(ARGV[1]) do
    local flags, values, pages = tonumber(ARGV[p]), tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])
    local gone, counts, payload = tonumber(ARGV[p + 4]), flags % 64 >= 32, flags >= 64
    parts[tostring(i)] = {
      reset = flags % 2 == 1, load = flags % 4 >= 2, new = flags % 8 >= 4, renew = flags % 16 >= 8,
      rewrite = flags % 32 >= 16, counts = counts, payload = payload, ttl = ARGV[p + 1],
      values = values, ends = string.format('%.0f', now + ARGV[p + 1]),
      pages = pages, gone = gone, logged = tonumber(ARGV[p + 5]),
      size = 2 * values + 2 * pages + gone + (counts and 1 or 0) + (payload and 1 or 0),
    }
    p = p + 6
  end
  return parts, p
end

-- expire sets the time to live of a key, if it has one. It returns an error text if it can't.
local function expire(key, part)
  if part.ttl == '0' then return nil end
  -- PEXPIRE takes longer because it has to be rewritten for replicas.
  local done = try('PEXPIREAT', key, part.ends)
  return type(done) == 'table' and done.err or nil
end

-- write writes the pages of a key. It returns how many are new, or an error.
local function write(key, part, at)
  local new, last = 0, at + 2 * part.pages
  if part.pages == 1 and part.gone == 0 then
    return put(key, part.ttl, ARGV[at + 1], ARGV[last])
  end
  for i = at + 1, last, 2000 do -- Lua can't unpack more than about 8,000 at a time
    local done = put(key, part.ttl, unpack(ARGV, i, math.min(i + 1999, last)))
    if type(done) == 'table' then return done end
    new = new + done
  end
  for i = last + 1, last + part.gone, 2000 do
    try(HDEL, key, unpack(ARGV, i, math.min(i + 1999, last + part.gone)))
  end
  return new
end

-- rewrite writes the pages of a key, the only ones that it has from now on, and keeps what its log
-- has after them. It reports an error text, or whether the key existed.
local function rewrite(key, part, at)
  local rest = part.logged >= 0 and try(HGET, key, LOG)
  if type(rest) == 'table' then return rest.err end
  local existed = try('DEL', key)
  if type(existed) == 'table' then return existed.err end
  write(key, part, at)
  if rest and #rest > part.logged then put(key, part.ttl, LOG, sub(rest, part.logged + 1)) end
  expire(key, part)
  return nil, existed == 1
end

local parts, p = readParts()

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
  local unchanged = fresh and expected ~= 0 and version == tonumber(ARGV[p + 5])
  local silent = unchanged and quieted == tonumber(ARGV[p + 6]) and last == ARGV[p + 7]
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
    if ARGV[p + 10] ~= '' then list(KEYS[k + 1], state[5], ARGV[p + 10], ARGV[p + 11]) end
    call('SET', KEYS[k], mark, 'PX', ttl)
  elseif acked > 0 then
    try('PEXPIRE', KEYS[k], ttl)
  end
  local refused = stored == seq and refusals(kept) or {}
  local errors, loaded, made = {}, {}, {}
  local status = stored > seq and seq > 0 and 3 or empty and 4 or 0
  local out, o = {status, version, quieted, epoch, last, errors, loaded, made}, 9

  -- fits reports whether the pages in the arguments are all that the key has once they are written.
  local function fits(key, part)
    if part.pages == 0 then return false end
    if part.new then return try('EXISTS', key) == 0 end
    if part.logged < 0 then return silent end
    return unchanged
  end

  -- count counts events of the key at position i. It returns an error text if it can't, and has
  -- counted nothing, and whether the key has to be loaded.
  local function count(i, key, part, at)
    local new, held
    if part.payload and not try('RESTORE', key, part.ends, ARGV[at + 1], 'ABSTTL').err then
      return nil, false
    end
    local fit = fits(key, part)
    if not fit and ARGV[at] == '' then return part.renew and expire(key, part) or nil, true end
    if not fit then
      new, held = logTo(key, part.ttl, ARGV[at])
    elseif part.rewrite then
      local err, existed = rewrite(key, part, at)
      if not err and not existed and not part.renew then made[#made + 1] = i end
      return err
    else
      local err = part.renew and not part.new and expire(key, part)
      if err then return err end
      new = write(key, part, at)
    end
    if type(new) == 'table' then return new.err end
    local all = part.new and fit or new > 0 and try(HLEN, key) == new
    if all and not part.renew and not part.new then made[#made + 1] = i end
    local err = (all or part.renew and held ~= nil) and expire(key, part)
    if err and all then
      try('DEL', key)
    elseif err and held then
      put(key, part.ttl, LOG, held)
    elseif err then
      try(HDEL, key, LOG)
    end
    return err or nil, not fit and (part.pages > 0 or part.payload)
  end

  -- countValues merges values into the key at position i, or reads what is there if the round was
  -- applied before. It returns an error text if it can't.
  local function countValues(i, key, part, at)
    local fields, times, new, err = {}, {}, 0, nil
    for j = 1, 2 * part.values do fields[j] = ARGV[at + j - 1] end
    if fresh then
      times, new = see(key, fields, part.ttl)
      if not times then times, new, err = {}, 0, new end
    end
    for j = 1, #fields, 2 do
      local seen = times[fields[j]]
      if not fresh then
        seen = try(HGET, key, fields[j])
        if type(seen) == 'table' then
          err = unreadable(seen.err, counted)
          seen = nil
        end
      end
      out[o], o = tonumber(seen) or 0, o + 1
    end
    local all = not err and (new > 0 or part.new) and try(HLEN, key) == new
    if all or part.renew and fresh and not err then err = expire(key, part) end
    return err, part.new and not all
  end

  -- apply does what a part says with the key at position i, whose arguments begin at ARGV[at]. It
  -- returns an error text if it can't.
  local function apply(i, key, part, at)
    local err, read
    if refused[i] then
      err = 'ERR it was refused when this round was carried out'
    elseif fresh and part.reset then
      err = forget(key, epoch, ttl)
    end
    if part.values > 0 then
      local failed
      failed, read = countValues(i, key, part, at)
      err = err or failed
    elseif part.counts and fresh and not err then
      err, read = count(i, key, part, at)
    elseif part.renew and fresh and not err then
      err = expire(key, part)
    end
    if (part.load or read or part.new and not fresh) and not err then
      local flat = try(HGETALL, key)
      if flat.err then -- what was counted stays counted, and the key is read another time
        err = part.values == 0 and not part.counts and flat.err or nil
      else
        loaded[#loaded + 1], loaded[#loaded + 2] = i, flat
      end
    end
    return err
  end

  local at = p + 12
  for i = 0, n - 1 do
    local part = parts[ARGV[at]]
    local err = apply(i, KEYS[k + 2 + i], part, at + 1)
    if err then errors[#errors + 1], errors[#errors + 2] = i, err end
    at = at + 1 + part.size
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
    after = p + 13
    for _ = 1, n do after = after + 1 + parts[ARGV[after]].size end
  end
  p = after
end
return replies
