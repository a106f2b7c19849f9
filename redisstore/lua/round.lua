-- Rounds of some partitions, one after the other. KEYS of each: sequence of the writer, state of the partition, then one hash for
-- each key. ARGV of each: number of keys, sequence, acknowledged, ttl of the sequence, epoch or 0, quiet (0 or 1), then for each key: flags
-- (1 reset, 2 load, 4 believed to be new), ttl or 0, number of adds, number of expired fields, the adds (field, delta[, ttl of the field]), the expired fields.
-- Reply for each: {lost, version, {position, error, ...}, {position, loaded fields, ...}, epoch, {positions of keys that were not
-- new, though believed to be}, value of every add of keys that were not new ...}, or an error.

local call, pcall_ = redis.call, redis.pcall

-- round carries out the round whose keys begin at k, and whose arguments begin at p.
local function round(k, n, p)
  local seq, acked = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  -- What is stored is the sequence, k if the writer knew the epoch, and after a colon the positions of the keys that its round was
  -- refused: sent again, it must say so again, whatever has become of them.
  local kept = call('GET', KEYS[k]) or '0'
  local stored = tonumber(string.match(kept, '^%d+'))
  local state = call('HMGET', KEYS[k + 1], 'e', 'v')
  local epoch, version = tonumber(state[1] or '0'), tonumber(state[2] or '0')
  local expected = tonumber(ARGV[p + 3])
  if stored < acked or expected ~= 0 and expected ~= epoch then
    return {1, version, {}, {}, epoch}
  end
  local fresh = seq > stored
  local mark = ARGV[p]
  if fresh then
    if expected ~= 0 then mark = mark .. 'k' end
    -- Whatever makes Redis refuse to write refuses here, before anything is written. After this nothing can fail
    -- without being caught.
    version = call('HINCRBY', KEYS[k + 1], 'v', 1 - tonumber(ARGV[p + 4]))
    if epoch == 0 then epoch = begin(KEYS[k + 1]) end
    call('SET', KEYS[k], mark, 'PX', ARGV[p + 2])
  elseif acked > 0 then
    pcall_('PEXPIRE', KEYS[k], ARGV[p + 2])
  end
  local refused = {}
  if stored == seq then
    for position in string.gmatch(string.match(kept, ':(.*)') or '', '%d+') do refused[tonumber(position)] = true end
  end
  local errors, loaded, known, out = {}, {}, {}, {0, version}
  out[3], out[4], out[5], out[6] = errors, loaded, epoch, known
  local a, o = p + 5, 7
  for i = 0, n - 1 do
    local key, flags, ttl = KEYS[k + 2 + i], ARGV[a], ARGV[a + 1]
    local adds, expired = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
    a = a + 4
    local reset, load, err = flags == '1' or flags == '3', flags == '2' or flags == '3', nil
    if refused[i] then err = 'ERR it was refused when this round was carried out' end
    if fresh and reset then call('DEL', key) end
    local first = 1
    if flags == '4' then
      if fresh and WIDTH == 2 and adds > 0 and adds <= 1000 and call('EXISTS', key) == 0 then
        call('HSET', key, unpack(ARGV, a, a + 2 * adds - 1))
        first = adds + 1
      else
        known[#known + 1] = i
      end
    end
    for j = first, adds do
      local at = a + (j - 1) * WIDTH
      local v = 0
      if not err then
        if fresh then
          v = add(key, ARGV[at], ARGV[at + 1], ARGV[at + 2])
        else
          v = pcall_(HGET, key, ARGV[at]) or 0
        end
        if type(v) == 'table' then
          err, v = v.err, 0
          for b = 1, j - 1 do
            local was = a + (b - 1) * WIDTH
            if fresh then add(key, ARGV[was], (string.gsub('-' .. ARGV[was + 1], '^%-%-', '')), ARGV[was + 2]) end
          end
        end
      end
      out[o] = tonumber(v)
      o = o + 1
    end
    a = a + adds * WIDTH
    if fresh and not err then
      -- Lua can't unpack more than about 8,000 at a time.
      for j = a, a + expired - 1, 1000 do
        pcall_(HDEL, key, unpack(ARGV, j, math.min(j + 999, a + expired - 1)))
      end
      if ttl ~= '0' then call('PEXPIRE', key, ttl) end
    end
    a = a + expired
    if load and not err then
      local n = pcall_(HLEN, key)
      if type(n) == 'table' then
        err = n.err
      elseif n > adds or not fresh then
        loaded[#loaded + 1] = i
        loaded[#loaded + 1] = call(HGETALL, key)
      end
    end
    if err then
      errors[#errors + 1] = i
      errors[#errors + 1] = err
    end
  end
  if fresh and #errors > 0 then
    local positions = {}
    for i = 1, #errors, 2 do positions[#positions + 1] = errors[i] end
    call('SET', KEYS[k], mark .. ':' .. table.concat(positions, ','), 'PX', ARGV[p + 2])
  end
  return out
end

local replies, k, p = {}, 1, 1
while k <= #KEYS do
  local n = tonumber(ARGV[p])
  -- What refuses one round, such as a lack of memory, does so before it has written anything, and undoes no other.
  local ok, reply = pcall(round, k, n, p + 1)
  if not ok then reply = redis.error_reply(type(reply) == 'table' and reply.err or tostring(reply)) end
  replies[#replies + 1] = reply
  k = k + 2 + n
  p = p + 6
  for _ = 1, n do p = p + 4 + tonumber(ARGV[p + 2]) * WIDTH + tonumber(ARGV[p + 3]) end
end
return replies
