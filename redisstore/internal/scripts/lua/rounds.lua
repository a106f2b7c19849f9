-- progress returns how far a writer has come: the sequence of its last round, the nonce, and the
-- whole stored value. That is the sequence and the nonce with a dot between them and, after a
-- colon, the positions of the keys that were refused.
local function progress(writer)
  local kept = redis.call('GET', writer) or '0'
  local seq, nonce = string.match(kept, '^(%d+)%.?(%d*)')
  return tonumber(seq), nonce, kept
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

-- lacks reports whether a change that was reported to a counter is missing from the data, whose
-- last change is last. told has the sequence, the second in which the change was cut, and the key
-- of its writer's sequence. If the change was made more than a day ago, that key may have expired.
local function lacks(told, last)
  if told == '' or told == last then return false end
  local seq, at, writer = string.match(told, '^(%d+) (%d+) (.*)')
  if not seq then return false end
  local stored, _, kept = progress(writer)
  if kept ~= '0' then return stored < tonumber(seq) end
  return redis.call('TIME')[1] - at < 86400
end

-- see merges values into those of a key: adds has the field and the time of each, or minus the time
-- to delete the value unless it was seen later. It returns the times afterwards, by field, and how
-- many values are new; or nil and an error text, and may have merged a part, which does no harm.
local function see(key, adds, ttl)
  local times, new = {}, 0
  for from = 1, #adds, 1000 do -- Lua can't unpack more than about 8,000 at a time
    local names, sets, gone = {}, {}, {}
    for i = from, math.min(from + 999, #adds), 2 do names[#names + 1] = adds[i] end
    local held = redis.pcall(HMGET, key, unpack(names))
    local done = held.err and held
    for i, name in ipairs(names) do
      local text = adds[from + 2 * i - 1]
      local seen, time = tonumber(held[i] or 0) or 0, tonumber(text)
      if time > seen then
        sets[#sets + 1], sets[#sets + 2] = name, text
        if not held[i] then new = new + 1 end
        seen = time
      elseif held[i] and -time >= seen then
        gone[#gone + 1] = name
        seen = 0
      end
      times[name] = seen
    end
    if not done and #sets > 0 then
      done = put(key, ttl, unpack(sets))
      done = type(done) == 'table' and done
    end
    if not done and #gone > 0 then
      done = redis.pcall(HDEL, key, unpack(gone))
      done = type(done) == 'table' and done
    end
    if done then return nil, done.err end
  end
  return times, new
end

-- recordOf returns the name of a key's restoration record.
local function recordOf(key)
  return (string.gsub(key, '}', '}!r', 1))
end

-- forget deletes a key, and prevents it from being restored in this epoch. It returns an error text
-- if it can't.
local function forget(key, epoch, ttl)
  local done = redis.pcall('DEL', key)
  if type(done) == 'table' then return done.err end
  local record = recordOf(key)
  redis.pcall('DEL', record)
  redis.pcall('HSET', record, 'e', string.format('%.0f', epoch), 'x', '1')
  redis.pcall('PEXPIRE', record, ttl)
end
