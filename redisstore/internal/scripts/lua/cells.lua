-- A key has its counts in fields that begin with c, each a page of cells, and in the field d, a log
-- of the cells that were added without knowledge of the pages. Only Go knows what is in them: to
-- add to a log is to append. A value of a key has the field v and, after that, the bytes of its
-- hash. What it has is when it was last seen, in unix milliseconds.
local LOG = 'd'
local byte, sub = string.byte, string.sub

-- logTo appends to the log of a key. It returns how many fields are new, or an error, and what the
-- log had before.
local function logTo(key, ttl, text)
  local held = redis.pcall(HGET, key, LOG)
  if type(held) == 'table' then return held end
  return put(key, ttl, LOG, (held or '') .. text), held
end
