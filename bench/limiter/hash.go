package limiter

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// KEYS[i] is the Hash of one key's counters of one width. ARGV: for each of KEYS: n, index of the present bucket, index
// of the oldest that any window can see, life of the key in milliseconds, number of rules, and for each rule the oldest
// bucket that it sums and its max.
const hashScript = `
local a = 1
local add = {}
for i = 1, #KEYS do
  local n, current, keep, rules = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2]), tonumber(ARGV[a + 4])
  add[i] = {n, current, ARGV[a + 3]}
  a = a + 5
  local buckets = redis.call('HGETALL', KEYS[i])
  local stale = {}
  for b = 1, #buckets, 2 do
    if tonumber(buckets[b]) < keep then stale[#stale + 1] = buckets[b] end
  end
  if #stale > 0 then redis.call('HDEL', KEYS[i], unpack(stale)) end
  for _ = 1, rules do
    local oldest, max = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    a = a + 2
    local held = 0
    for b = 1, #buckets, 2 do
      if tonumber(buckets[b]) >= oldest then held = held + tonumber(buckets[b + 1]) end
    end
    if held + n > max then return 0 end
  end
end
for i = 1, #KEYS do
  redis.call('HINCRBY', KEYS[i], add[i][2], add[i][1])
  redis.call('PEXPIRE', KEYS[i], add[i][3])
end
return 1`

// Edge says which sub-windows a window is made of when it starts in the middle of one.
type Edge bool

// The two habits.
const (
	// LastN sums as many sub-windows as fit into the window, the present one included: what most published scripts
	// do. It looks back a little less far than the window is long, and can let too many through.
	LastN Edge = false
	// WholeOldest includes the sub-window in which the window starts, as twotier does. It can refuse early.
	WholeOldest Edge = true
)

// A step is one width of sub-windows and the longest window that it serves, both in milliseconds.
type step struct{ width, span int64 }

// ladder is twotier's default: the rivals that count in sub-windows get the same resolution.
var ladder = []step{{1000, 60_000}, {60_000, 3_600_000}, {900_000, 86_400_000}}

// Width returns the width in milliseconds of the sub-windows that serve a window.
func Width(window int64) int64 {
	for _, s := range ladder {
		if window <= s.span {
			return s.width
		}
	}
	return ladder[len(ladder)-1].width
}

// NewHash returns the Hash of sub-window counters: bounded memory, all of it read for every decision.
func NewHash(rdb *redis.Client, edge Edge) *Scripted {
	name, prefix := "hash, last n", "h:"
	if edge == WholeOldest {
		name, prefix = "hash, whole oldest", "w:"
	}
	return &Scripted{name: name, rdb: rdb, script: redis.NewScript(hashScript),
		encode: func(checks []Check, ts int64) ([]string, []any) {
			return encodeHash(prefix, checks, ts, edge)
		}}
}

// encodeHash names one Hash for each width that the rules of a check need.
func encodeHash(prefix string, checks []Check, ts int64, edge Edge) (keys []string, argv []any) {
	for _, c := range checks {
		for _, s := range ladder {
			var rules []any
			var span int64
			for _, l := range c.Limits {
				if Width(l.Window) == s.width {
					rules = append(rules, oldest(l.Window, s.width, ts, edge), l.Max)
					span = max(span, l.Window)
				}
			}
			if rules == nil {
				continue
			}
			keys = append(keys, fmt.Sprintf("%s%s:%d", prefix, c.Key, s.width/1000))
			argv = append(argv, c.N, ts/s.width, oldest(span, s.width, ts, edge), span+s.width, len(rules)/2)
			argv = append(argv, rules...)
		}
	}
	return keys, argv
}

// oldest is the index of the first bucket that is summed for a window that ends at ts.
func oldest(window, width, ts int64, edge Edge) int64 {
	if edge == WholeOldest {
		return (ts - window + 1) / width
	}
	return ts/width - (window+width-1)/width + 1
}
