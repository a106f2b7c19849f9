package limiter

import (
	"strconv"

	"github.com/redis/go-redis/v9"
)

// KEYS[i] is the counter of one rule in its present calendar window. ARGV for each: n, max, life in milliseconds.
const incrScript = `
for i = 1, #KEYS do
  local held = tonumber(redis.call('GET', KEYS[i]) or 0)
  if held + tonumber(ARGV[3 * i - 2]) > tonumber(ARGV[3 * i - 1]) then return 0 end
end
for i = 1, #KEYS do
  local n = tonumber(ARGV[3 * i - 2])
  if redis.call('INCRBY', KEYS[i], n) == n then
    redis.call('PEXPIRE', KEYS[i], ARGV[3 * i])
  end
end
return 1`

// NewIncr returns the fixed window: one counter for every rule that starts again at zero when the calendar says so. The
// cheapest by far, and up to twice the limit can pass around the turn of a window.
func NewIncr(rdb *redis.Client) *Scripted {
	return &Scripted{name: "incr fixed window", rdb: rdb, script: redis.NewScript(incrScript), encode: encodeIncr}
}

func encodeIncr(checks []Check, ts int64) (keys []string, argv []any) {
	for _, c := range checks {
		for _, l := range c.Limits {
			window := strconv.FormatInt(l.Window, 10)
			index := strconv.FormatInt(ts/l.Window, 10)
			keys = append(keys, "i:"+c.Key+":"+window+":"+index)
			argv = append(argv, c.N, l.Max, l.Window)
		}
	}
	return keys, argv
}
