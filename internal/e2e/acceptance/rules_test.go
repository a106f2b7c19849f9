package acceptance

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random traffic; 0 picks one")

// rule is one of the four limits on a message.
type rule struct {
	path   string
	window time.Duration
	max    int
	byKey  func(receiver, content int) string
}

func rules() []rule {
	receiver := func(r, _ int) string { return fmt.Sprint("receiver-", r) }
	both := func(r, c int) string { return fmt.Sprintf("receiver-%d content-%d", r, c) }
	return []rule{
		{"checks[0].limits[0]", time.Minute, 15, receiver},
		{"checks[0].limits[1]", 24 * time.Hour, 50, receiver},
		{"checks[1].limits[0]", 59 * time.Second, 2, both},
		{"checks[1].limits[1]", 59 * time.Minute, 5, both},
	}
}

// bucket returns the width of the buckets from which a window is read.
func bucket(window time.Duration) time.Duration {
	switch {
	case window <= time.Minute:
		return time.Second
	case window <= time.Hour:
		return time.Minute
	}
	return 15 * time.Minute
}

// exact is the list of all events of every key, the reference for every decision.
type exact map[string][]int64

func (x exact) within(key string, window time.Duration, at int64) (n int) {
	for _, ts := range x[key] {
		if ts > at-window.Milliseconds() && ts <= at {
			n++
		}
	}
	return n
}

// TestFourRulesForADay sends messages to several receivers for a day, fewer at night than by day
// and sometimes in bursts, and checks every decision against the exact list.
func TestFourRulesForADay(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", seed)
	withBothClocks(t, func(t *testing.T, b *bed, tl *timeline) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		tl.begin(24*time.Hour - 20*time.Minute)
		start, log := tl.at, exact{}
		outcomes := map[string]int{}
		// hour counts minutes; the stamped story is a little shorter than a day.
		for hour := range int64(24 * 60) {
			if tl.stamped && hour >= 24*60-40 {
				break
			}
			tries, pause := 0, int64(1500)
			switch daytime := hour >= 8*60 && hour < 22*60; {
			case rnd.IntN(90) == 0: // a burst
				tries = 25
			case rnd.IntN(89) == 0: // a sender who keeps trying
				tries, pause = 10, 45_000
			case daytime && rnd.IntN(3) == 0:
				tries = 1 + rnd.IntN(2)
			case rnd.IntN(20) == 0:
				tries = 1
			}
			if tries == 0 {
				continue
			}
			tl.to(max(tl.at, start+hour*minute+rnd.Int64N(20_000)))
			receiver, content := rnd.IntN(8), rnd.IntN(4)
			for range tries {
				if pause < 2000 && rnd.IntN(3) > 0 {
					content = rnd.IntN(12)
				}
				for _, outcome := range message(b, tl, log, receiver, content) {
					outcomes[outcome]++
				}
				tl.to(tl.at + rnd.Int64N(pause))
			}
		}
		if len(outcomes) < 5 {
			t.Errorf("the traffic did not meet every rule: %v", outcomes)
		}
		t.Logf("%v", outcomes)
		for key, events := range log {
			at := tl.at
			if got, want := b.count(key, "24h", at),
				log.within(key, 24*time.Hour, at); got.Max < int64(want) ||
				got.Max > int64(len(events)) {
				t.Errorf("%s: counts %+v, exactly %d of %d", key, got, want, len(events))
			}
		}
	})
}

// message sends one message and returns the rules that refused it.
func message(b *bed, tl *timeline, log exact, receiver, content int) []string {
	b.t.Helper()
	rs := rules()
	a := b.ok("/v1/acquire", fmt.Sprintf(`{"checks":[
		{"key":%q,"limits":[{"window":"1m","max":15},{"window":"24h","max":50}]},
		{"key":%q,"limits":[{"window":"59s","max":2},{"window":"59m","max":5}]}]%s}`,
		rs[0].byKey(receiver, content), rs[2].byKey(receiver, content), tl.ts()))
	for i, r := range rs {
		key := r.byKey(receiver, content)
		n := log.within(key, r.window, tl.at)
		named := slices.Contains(a.RefusedBy, r.path)
		if a.Checks[i/2].Limits[i%2].Refused != named {
			b.t.Errorf("%d: %s: refused_by and limits disagree: %+v", tl.at, r.path, a)
		}
		switch {
		case a.Allowed && n+1 > r.max:
			b.t.Errorf("%d: %s: admitted event %d of %d in %v", tl.at, r.path, n+1, r.max, r.window)
		case !a.Allowed && n+1 > r.max && !named:
			b.t.Errorf("%d: %s has no room (%d) and is not named: %v", tl.at, r.path,
				n, a.RefusedBy)
		case named && log.within(key, r.window+bucket(r.window), tl.at)+1 <= r.max:
			b.t.Errorf("%d: %s has room and is named: %+v", tl.at, r.path, a)
		}
	}
	if !a.Allowed {
		if len(a.RefusedBy) == 0 {
			b.t.Errorf("%d: refused by nothing: %+v", tl.at, a)
		}
		return a.RefusedBy
	}
	for _, key := range []string{rs[0].byKey(receiver, content), rs[2].byKey(receiver, content)} {
		log[key] = append(log[key], tl.at)
	}
	return []string{"passed"}
}

// TestValuesBesideEvents acquires events of one key and values of the same and of another key: both
// are counted, or none. Values leave a window one by one.
func TestValuesBesideEvents(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		acquire := func(value string) answer {
			return b.ok("/v1/acquire", fmt.Sprintf(`{"checks":[{"key":"account","values":["%s"],`+
				`"value_limits":[{"window":"1m","max":2}],"limits":[{"window":"1h","max":4}]},`+
				`{"key":"address","values":["%[1]s"],"value_limits":[{"window":"1h","max":9}]}]}`,
				value))
		}
		distinct := func(key string) int64 {
			return b.get("/v1/distinct", "key", key, "window", "1h").Counts[0].Count
		}
		for i, step := range []struct {
			value, refused          string
			events, values, address int64
		}{
			{"a", "", 1, 1, 1},
			{"b", "", 2, 2, 2},
			{"c", "checks[0].value_limits[0]", 2, 2, 2},
			{"a", "", 3, 2, 2},
			{"d", "", 4, 3, 3},                    // once b has left the window
			{"e", "checks[0].limits[0]", 4, 3, 3}, // once a has
		} {
			if i > 0 {
				b.mono.Add(int64(19 * time.Second))
			}
			if i >= 4 {
				b.mono.Add(int64(30 * time.Second))
			}
			a := acquire(step.value)
			if by := strings.Join(a.RefusedBy, " "); by != step.refused ||
				a.Allowed != (by == "") || a.Allowed != (a.RetryAfter == 0) {
				t.Errorf("step %d: %+v", i, a)
			}
			if e, v, o := b.count("account", "1h").Max, distinct("account"),
				distinct("address"); e != step.events || v != step.values || o != step.address {
				t.Errorf("step %d: %d events, %d and %d values", i, e, v, o)
			}
		}
		if n := b.count("address", "1h").Max; n != 0 {
			t.Errorf("%d events of a key without limits on events", n)
		}
	})
}

const minute = int64(60_000)
