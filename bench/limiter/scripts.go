package limiter

import (
	"context"
	"crypto/rand"
	_ "embed" // the scripts
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/leaparray"
)

var (
	//go:embed zset.lua
	zsetScript string
	//go:embed stream.lua
	streamScript string
	//go:embed hash.lua
	hashScript string
	//go:embed incr.lua
	incrScript string
)

// NewZSet returns the log of timestamps in a sorted set: exact, with one member for every event
// that was admitted. A member is named by its caller, not by its time: two events of one
// millisecond must not fall together.
func NewZSet(rdb *redis.Client) *Scripted {
	process := rand.Text()[:8]
	var calls atomic.Int64
	return newScripted("zset log", rdb, zsetScript,
		func(checks []Check, ts int64) ([]string, []any) {
			id := process + strconv.FormatInt(calls.Add(1), 36)
			return encodeLog("z:", []any{ts, id}, checks)
		})
}

// NewStream returns the log as a stream: exact, one entry for every event that was admitted, packed
// more tightly than a sorted set and counted by reading. A stream takes no entry from before its
// last: an event that comes late is written down at the last one's time.
func NewStream(rdb *redis.Client) *Scripted {
	return newScripted("stream", rdb, streamScript,
		func(checks []Check, ts int64) ([]string, []any) {
			return encodeLog("x:", []any{ts}, checks)
		})
}

// encodeLog appends to argv what a script that keeps one log for each key is told about every
// check.
func encodeLog(prefix string, argv []any, checks []Check) ([]string, []any) {
	keys := make([]string, len(checks))
	for i, c := range checks {
		keys[i] = prefix + string(c.Key)
		argv = append(argv, c.N, longest(c.Limits), len(c.Limits))
		for _, l := range c.Limits {
			argv = append(argv, l.Window, l.Max)
		}
	}
	return keys, argv
}

// longest is the longest window among limits, 0 if there are none.
func longest(limits []Limit) (window int64) {
	for _, l := range limits {
		window = max(window, l.Window)
	}
	return window
}

// NewIncr returns the fixed window: one counter for every rule that starts again at zero when the
// calendar says so. The cheapest by far, and up to twice the limit can pass around the turn of a
// window.
func NewIncr(rdb *redis.Client) *Scripted {
	return newScripted("incr fixed window", rdb, incrScript,
		func(checks []Check, ts int64) (keys []string, argv []any) {
			for _, c := range checks {
				for _, l := range c.Limits {
					keys = append(keys, fmt.Sprintf("i:%s:%d:%d", c.Key, l.Window, ts/l.Window))
					argv = append(argv, c.N, l.Max, l.Window)
				}
			}
			return keys, argv
		})
}

// Edge says which sub-windows a window is made of when it starts in the middle of one.
type Edge bool

// The two habits.
const (
	// LastN sums as many sub-windows as fit into the window, the present one included: what most
	// published scripts do. It looks back a little less far than the window is long, and can let
	// too many through.
	LastN Edge = false
	// WholeOldest includes the sub-window in which the window starts, as twotier does. It can
	// refuse early.
	WholeOldest Edge = true
)

// NewHash returns the Hash of sub-window counters: bounded memory, all of it read for every
// decision.
func NewHash(rdb *redis.Client, edge Edge) *Scripted {
	name, prefix := "hash, last n", "h:"
	if edge == WholeOldest {
		name, prefix = "hash, whole oldest", "w:"
	}
	return newScripted(name, rdb, hashScript, encodeHash(prefix, edge, 0))
}

// NewFieldExpiry returns the Hash whose fields expire one by one, as TairHash does it and Redis
// since 7.4 and Valkey since 9. It asks the server for the command and returns ErrNotAvailable
// where it has none.
func NewFieldExpiry(ctx context.Context, rdb *redis.Client) (*Scripted, error) {
	const name = "hash, field expiry"
	err := rdb.HPExpire(ctx, "limiter:probe", time.Second, "f").Err()
	if err != nil && strings.HasPrefix(err.Error(), "ERR unknown command") {
		return nil, fmt.Errorf("%s: HPEXPIRE: %w", name, ErrNotAvailable)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: probe: %w", name, err)
	}
	return newScripted(name, rdb, hashScript, encodeHash("f:", LastN, 1)), nil
}

// Width returns the width in milliseconds of the sub-windows that serve a window: twotier's, so
// that the rivals that count in sub-windows have the same resolution.
func Width(window int64) int64 {
	levels := leaparray.DefaultLevels()
	for _, l := range levels {
		if window <= l.Width.Milliseconds()*int64(l.Count) {
			return l.Width.Milliseconds()
		}
	}
	return levels[len(levels)-1].Width.Milliseconds()
}

// encodeHash names one Hash for each width that the rules of a check need. Expire is 1 if fields
// are to expire by themselves.
func encodeHash(prefix string, edge Edge, expire int) encoder {
	return func(checks []Check, ts int64) (keys []string, argv []any) {
		argv = append(argv, expire)
		for _, c := range checks {
			for _, level := range leaparray.DefaultLevels() {
				width := level.Width.Milliseconds()
				var rules []any
				var span int64
				for _, l := range c.Limits {
					if Width(l.Window) == width {
						rules = append(rules, oldest(l.Window, width, ts, edge), l.Max)
						span = max(span, l.Window)
					}
				}
				if rules == nil {
					continue
				}
				keys = append(keys, fmt.Sprintf("%s%s:%d", prefix, c.Key, width/1000))
				argv = append(argv, c.N, ts/width, oldest(span, width, ts, edge), span+width,
					len(rules)/2)
				argv = append(argv, rules...)
			}
		}
		return keys, argv
	}
}

// oldest is the index of the first bucket that is summed for a window that ends at ts.
func oldest(window, width, ts int64, edge Edge) int64 {
	if edge == WholeOldest {
		return (ts - window + 1) / width
	}
	return ts/width - (window+width-1)/width + 1
}
