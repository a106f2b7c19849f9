package limiter

import (
	"crypto/rand"
	_ "embed" // the scripts
	"fmt"
	"strconv"
	"sync/atomic"

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

// scripts returns the limiters that are one Lua script in Redis.
func scripts() []script {
	return []script{
		{"zset-lua", "zset log", zsetScript, zset()},
		{"hash-lua", "hash, last n", hashScript, hash("h:", lastN, 0)},
		{"hash-lua-whole", "hash, whole oldest", hashScript, hash("w:", wholeOldest, 0)},
		{fieldExpiry, "hash, field expiry", hashScript, hash("f:", lastN, 1)},
		{"stream-lua", "stream", streamScript, stream},
		{"incr-lua", "incr fixed window", incrScript, incr},
	}
}

// zset is for the log of timestamps in a sorted set: exact, with one member for every admitted
// event. The caller names the members, because two events of one millisecond must not become one
// member.
func zset() encoder {
	process := rand.Text()[:8]
	var calls atomic.Int64
	return func(checks []Check, ts int64) ([]string, []any) {
		id := process + strconv.FormatInt(calls.Add(1), 36)
		return encodeLog("z:", []any{ts, id}, checks)
	}
}

// stream is for the log as a stream: exact, with one entry for every admitted event, more compact
// than a sorted set, and counted by reading. A stream accepts no entry older than its last one, so
// a late event gets the time of the last one.
func stream(checks []Check, ts int64) ([]string, []any) {
	return encodeLog("x:", []any{ts}, checks)
}

// encodeLog appends the arguments for every check to argv, for a script that keeps one log per key.
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

// longest returns the longest window among limits, or 0 if there are none.
func longest(limits []Limit) (window int64) {
	for _, l := range limits {
		window = max(window, l.Window)
	}
	return window
}

// incr is for the fixed window: one counter per rule, which restarts at zero with each calendar
// window. It is the cheapest by far, but up to twice the limit can pass around the end of a window.
func incr(checks []Check, ts int64) (keys []string, argv []any) {
	for _, c := range checks {
		for _, l := range c.Limits {
			keys = append(keys, fmt.Sprintf("i:%s:%d:%d", c.Key, l.Window, ts/l.Window))
			argv = append(argv, c.N, l.Max, l.Window)
		}
	}
	return keys, argv
}

// Width returns the width in milliseconds of the sub-windows for a window. They are twotier's, so
// that all rivals that count in sub-windows have the same resolution.
func Width(window int64) int64 {
	levels := leaparray.DefaultLevels()
	for _, l := range levels {
		if window <= l.Width.Milliseconds()*int64(l.Count) {
			return l.Width.Milliseconds()
		}
	}
	return levels[len(levels)-1].Width.Milliseconds()
}

// hash is for the Hash of sub-window counters, one for each width that the rules of a check need.
// Its memory is bounded, and every decision reads all of it. expire is 1 if fields expire by
// themselves, as in TairHash, Redis from 7.4 on and Valkey from 9 on.
func hash(prefix string, oldest func(window, width, ts int64) int64, expire int) encoder {
	return func(checks []Check, ts int64) (keys []string, argv []any) {
		argv = append(argv, expire)
		for _, c := range checks {
			for _, level := range leaparray.DefaultLevels() {
				width := level.Width.Milliseconds()
				var rules []any
				var span int64
				for _, l := range c.Limits {
					if Width(l.Window) == width {
						rules = append(rules, oldest(l.Window, width, ts), l.Max)
						span = max(span, l.Window)
					}
				}
				if rules == nil {
					continue
				}
				keys = append(keys, fmt.Sprintf("%s%s:%d", prefix, c.Key, width))
				argv = append(argv, c.N, ts/width, oldest(span, width, ts), span+width,
					len(rules)/2)
				argv = append(argv, rules...)
			}
		}
		return keys, argv
	}
}

// lastN returns the oldest sub-window to sum for a window that ends at ts: as many as fit into the
// window, including the current one, as in most published scripts. It looks back less than the
// whole window, and can admit too many.
func lastN(window, width, ts int64) int64 { return ts/width - (window+width-1)/width + 1 }

// wholeOldest includes the whole sub-window in which the window starts, as twotier does. It can
// refuse too early.
func wholeOldest(window, width, ts int64) int64 { return (ts - window + 1) / width }
