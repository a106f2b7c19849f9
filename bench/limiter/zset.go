package limiter

import (
	"crypto/rand"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// KEYS[i] is the log of check i. ARGV: now, a name for this call, then for each check: n, longest window, number of
// rules, and window and max of each.
const zsetScript = `
local now, id = tonumber(ARGV[1]), ARGV[2]
local a = 3
local add = {}
for i = 1, #KEYS do
  local n, longest, rules = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  a = a + 3
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now - longest)
  for _ = 1, rules do
    local window, max = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    a = a + 2
    local held
    if window == longest then
      held = redis.call('ZCARD', KEYS[i])
    else
      held = redis.call('ZCOUNT', KEYS[i], string.format('(%.0f', now - window), '+inf')
    end
    if held + n > max then return 0 end
  end
  add[i] = {n, longest}
end
for i = 1, #KEYS do
  for e = 1, add[i][1] do
    redis.call('ZADD', KEYS[i], now, id .. ':' .. e)
  end
  redis.call('PEXPIRE', KEYS[i], add[i][2])
end
return 1`

// NewZSet returns the log of timestamps in a sorted set: exact, with one member for every event that was admitted. A
// member is named by its caller, not by its time: two events of one millisecond must not fall together.
func NewZSet(rdb *redis.Client) *Scripted {
	process := rand.Text()[:8]
	var calls atomic.Int64
	return &Scripted{name: "zset log", rdb: rdb, script: redis.NewScript(zsetScript),
		encode: func(checks []Check, ts int64) ([]string, []any) {
			id := process + strconv.FormatInt(calls.Add(1), 36)
			return encodeLog("z:", []any{ts, id}, checks)
		}}
}

// encodeLog appends to argv what a script that keeps one log for each key is told about every check.
func encodeLog(prefix string, argv []any, checks []Check) ([]string, []any) {
	keys := make([]string, len(checks))
	for i, c := range checks {
		keys[i] = prefix + c.Key
		argv = append(argv, c.N, longest(c.Limits), len(c.Limits))
		for _, l := range c.Limits {
			argv = append(argv, l.Window, l.Max)
		}
	}
	return keys, argv
}
