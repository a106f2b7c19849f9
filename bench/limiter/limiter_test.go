package limiter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/internal/testing/must"
)

const minute = int64(60_000)

// start is a whole number of minutes, so that the edges of sub-windows are known.
const start = 28_000_000 * minute

func startRedis(t *testing.T) *redis.Client {
	t.Helper()
	server, err := proc.StartRedis()
	must.Succeed(t, err)
	rdb := limiter.Connect(server.Addr, 4)
	t.Cleanup(func() {
		if err := errors.Join(rdb.Close(), server.Stop()); err != nil {
			t.Error(err)
		}
	})
	return rdb
}

func rivals(t *testing.T) (all []*limiter.Scripted) {
	t.Helper()
	rdb := startRedis(t)
	for _, name := range limiter.ScriptNames() {
		l, err := limiter.NewScripted(t.Context(), name, rdb)
		if errors.Is(err, limiter.ErrNotAvailable) {
			t.Log(err)
			continue
		}
		must.Succeed(t, err)
		all = append(all, l)
	}
	return all
}

// call is a decision on one key.
func call(key string, n, ts int64, limits []limiter.Limit) limiter.Call {
	return limiter.At(ts, limiter.Check{Key: []byte(key), N: n, Limits: limits})
}

// timed returns all limiters that accept the time of an event.
func timed(t *testing.T) (all []limiter.Limiter) {
	t.Helper()
	for _, l := range rivals(t) {
		all = append(all, l)
	}
	return append(all, limiter.NewZSetPipe(startRedis(t)))
}

func TestEveryRuleHolds(t *testing.T) {
	limits := []limiter.Limit{{Window: minute, Max: 5}, {Window: 60 * minute, Max: 7}}
	calls := []struct {
		minute, n int64
		want      bool
	}{
		// Five in this minute.
		{0, 1, true}, {0, 3, true}, {0, 2, false}, {0, 1, true}, {0, 1, false},
		{2, 3, false}, {2, 2, true}, {2, 1, false}, // seven in this hour
		{4, 6, false}, // more than a limit by itself
	}
	for _, l := range timed(t) {
		t.Run(l.Name(), func(t *testing.T) {
			for i, c := range calls {
				got, err := limiter.Ask(t.Context(), l,
					call("k", c.n, start+c.minute*minute, limits))
				if err != nil || got != c.want {
					t.Errorf("call %d: allowed=%t, %v", i, got, err)
				}
			}
		})
	}
}

func TestAllOrNothing(t *testing.T) {
	for _, l := range timed(t) {
		t.Run(l.Name(), func(t *testing.T) {
			wide := limiter.One("wide", []limiter.Limit{{Window: minute, Max: 2}})
			narrow := limiter.One("narrow", []limiter.Limit{{Window: minute, Max: 1}})
			both := limiter.At(start, wide, narrow)
			for i, want := range []bool{true, false, false} {
				if got, err := limiter.Ask(t.Context(), l, both); err != nil || got != want {
					t.Fatalf("call %d: allowed=%t, %v", i, got, err)
				}
			}
			if got, err := limiter.Ask(t.Context(), l, limiter.At(start, wide)); err != nil ||
				!got {
				t.Errorf("a refused call counted: allowed=%t, %v", got, err)
			}
		})
	}
}

// TestAgainstJudge: the logs decide exactly as the judge does; sub-windows only err in their own
// direction.
func TestAgainstJudge(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	limits := []limiter.Limit{{Window: minute, Max: 4}, {Window: 7 * minute, Max: 9},
		{Window: 5 * 60 * minute, Max: 60}}
	for _, l := range timed(t) {
		t.Run(l.Name(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var own limiter.Exact
			ts, over, early := start, 0, 0
			for i := range 3000 {
				ts += int64(r.ExpFloat64() * 20_000)
				c := call(fmt.Sprint("k", r.IntN(2)), 1+r.Int64N(2), ts, limits)
				allowed, err := limiter.Ask(t.Context(), l, c)
				if err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
				room := true
				for _, lim := range limits {
					room = room &&
						own.Held(c.Checks[0].Key, lim.Window, ts)+c.Checks[0].N <= lim.Max
				}
				if allowed {
					own.Record(c)
				}
				if allowed && !room {
					over++
				}
				if !allowed && room {
					early++
				}
			}
			t.Logf("over-admitted %d, refused early %d", over, early)
			mayOver := map[string]bool{"hash, last n": true, "hash, field expiry": true,
				"incr fixed window": true}[l.Name()]
			mayEarly := l.Name() == "hash, whole oldest"
			if mayOver != (over > 0) || mayEarly != (early > 0) {
				t.Errorf("over-admitted %d, refused early %d", over, early)
			}
		})
	}
}

func TestFieldExpiryDecidesLikeHash(t *testing.T) {
	rdb := startRedis(t)
	field, err1 := limiter.NewUnexpiring(t.Context(), rdb)
	hash, err2 := limiter.NewScripted(t.Context(), "hash-lua", rdb)
	must.Succeed(t, errors.Join(err1, err2))
	limits := []limiter.Limit{{Window: minute, Max: 3}, {Window: 60 * minute, Max: 40}}
	r := rand.New(rand.NewPCG(1, 2))
	ts := start
	for i := range 1000 {
		ts += int64(r.ExpFloat64() * 15_000)
		want, err1 := limiter.Ask(t.Context(), hash, call("k", 1, ts, limits))
		got, err2 := limiter.Ask(t.Context(), field, call("k", 1, ts, limits))
		if err := errors.Join(err1, err2); err != nil || got != want {
			t.Fatalf("event %d: allowed=%t, %v", i, got, err)
		}
	}
}

// TestOwnClock makes decisions within a short moment: with their own clocks, no others are
// predictable.
func TestOwnClock(t *testing.T) {
	limits := []limiter.Limit{{Window: 60 * minute, Max: 5}, {Window: 24 * 60 * minute, Max: 7}}
	for _, l := range []limiter.Limiter{limiter.NewGCRA(startRedis(t)), limiter.NewSentinel()} {
		t.Run(l.Name(), func(t *testing.T) {
			for i, c := range []struct {
				n    int64
				want bool
			}{{3, true}, {3, false}, {2, true}, {1, false}} {
				if got, err := limiter.Ask(t.Context(), l, call("k", c.n, 0, limits)); err != nil ||
					got != c.want {
					t.Errorf("call %d: allowed=%t, %v", i, got, err)
				}
			}
		})
	}
}
