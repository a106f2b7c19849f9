package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// banned returns an Acquire of n events of a key. The limits from the first on start a ban of
// window milliseconds.
func banned(key string, n, window int64, first uint16, l []twotier.Limit) twotier.Op {
	ns, name := twotier.BanKey(nil, "rule", []byte(key))
	return twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
		{Key: []byte(key), N: n, Limits: l},
		{Kind: twotier.BanCheck, NS: ns, Key: name, Limits: limits(window, 0),
			Ban: twotier.Ban{From: first, To: uint16(len(l))}},
	}}
}

// TestBansAgainstAModel bans some keys at random, and compares the bans with their predicted ends:
// none ends early, and each ends, within a second, at its reported time. Nothing is counted during
// a ban.
func TestBansAgainstAModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	type state struct{ since, end, counted int64 }
	keys := map[string]*state{}
	starts, ends, during := 0, 0, 0
	for range 4000 {
		now := clk.Now() + dice.Int64N(1500)
		clk.set(now)
		key := fmt.Sprint("k", dice.IntN(3))
		s := keys[key]
		if s == nil {
			s = new(state)
			keys[key] = s
		}
		op := banned(key, 1+dice.Int64N(3), 20_000, 1, limits(1000, 5, 10_000, 8))
		op.DryRun, op.CountDenied = dice.IntN(5) == 0, dice.IntN(8) == 0
		op.Charge = dice.IntN(8) == 0
		if dice.IntN(6) == 0 {
			op.TS = now - dice.Int64N(8000)
		}
		res := do(t, c, op)
		r, ban := &res.Checks[0], &res.Checks[1]
		holds := ban.Refused && ban.TS == 0
		switch {
		case holds != (now < s.end):
			t.Fatalf("at %d: a ban %v, but there is one from %d to %d", now, holds, s.since, s.end)
		case holds && (res.Allowed || now+ban.RetryAfter != s.end || res.RetryAfter != -1 &&
			res.RetryAfter < ban.RetryAfter):
			t.Fatalf("at %d: %+v, want refused until %d", now, res, s.end)
		case holds:
			during++
		case s.end != 0:
			ends++
			s.end = 0
		}
		breach := !holds && r.Limits[1].Refused && !op.DryRun
		if started := ban.TS != 0 && ban.Refused; started != breach {
			t.Fatalf("at %d: %+v, want a ban: %v", now, res, breach)
		}
		if breach {
			starts++
			s.since, s.end = now, now+ban.RetryAfter
			if ban.RetryAfter < 20_000 || ban.RetryAfter >= 21_000 {
				t.Fatalf("a ban of %d ms", ban.RetryAfter)
			}
		}
		if !op.DryRun && (op.Charge || !holds && (res.Allowed || op.CountDenied)) {
			s.counted += op.Checks[0].N
		}
		if got := count(t, c, key, 86_400_000); got != s.counted {
			t.Fatalf("at %d: %d events of %s, want %d", now, got, key, s.counted)
		}
	}
	if starts < 20 || ends < 20 || during < 200 {
		t.Errorf("too few: %d starts, %d ends, %d refusals", starts, ends, during)
	}
}

// TestABanIsPlacedWithItsKey checks the placement in every namespace, with hash tags and without.
func TestABanIsPlacedWithItsKey(t *testing.T) {
	p := twotier.Placement{Partitions: 1021, Seed: 7, HashTags: twotier.HashTags{"sms": true}}
	for _, ns := range []string{"", "default", "login", "sms"} {
		for _, key := range []string{"a", "{1}:x", "a/b", "login/a", "{}"} {
			banNS, name := twotier.BanKey([]byte(ns), "rule", []byte(key))
			if got, want := p.Of(banNS, name), p.Of([]byte(ns), []byte(key)); got != want {
				t.Errorf("%s %s: partition %d, its key has %d", ns, key, got, want)
			}
		}
	}
}

// TestABanIsAllOrNothing breaches one rule in an Acquire of several keys. If it counts refusals,
// all of them are counted, else none, and only that key is banned. The refusal starts no ban of
// another key either. During the ban nothing is counted in any case.
func TestABanIsAllOrNothing(t *testing.T) {
	for _, countDenied := range []bool{false, true} {
		t.Run(fmt.Sprint("CountDenied=", countDenied), func(t *testing.T) {
			breachOneOfTwo(t, countDenied)
		})
	}
}

func breachOneOfTwo(t *testing.T, countDenied bool) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	a := banned("a", 2, 60_000, 0, limits(60_000, 1))
	b := banned("b", 1, 60_000, 0, limits(60_000, 9))
	both := twotier.Op{Kind: twotier.Acquire, CountDenied: countDenied,
		Checks: append(append([]twotier.Check(nil), b.Checks...), a.Checks...)}
	var inA, inB int64
	if countDenied {
		inA, inB = 2, 1
	}
	checkCounts := func() {
		t.Helper()
		if gotA, gotB := count(t, c, "a", 60_000), count(t, c, "b", 60_000); gotA != inA ||
			gotB != inB {
			t.Errorf("%d and %d were counted, want %d and %d", gotA, gotB, inA, inB)
		}
	}
	res := do(t, c, both)
	if res.Allowed || res.Checks[1].Refused || !res.Checks[3].Refused || res.Checks[3].TS == 0 {
		t.Errorf("the breach: %+v", res)
	}
	checkCounts()
	both.CountDenied = true
	if res = do(t, c, both); res.Allowed || !both.Banned(&res) {
		t.Errorf("during the ban: %+v", res)
	}
	checkCounts()
	if res = do(t, c, b); !res.Allowed {
		t.Errorf("the other key: %+v", res)
	}
	ns, name := twotier.BanKey(nil, "rule", []byte("a"))
	if err := c.ResetKey(context.Background(), ns, name); err != nil {
		t.Fatal(err)
	}
	a.Checks[0].N = 1
	if res = do(t, c, a); res.Allowed == countDenied || a.Banned(&res) {
		t.Errorf("after the ban was lifted: %+v", res)
	}
}

// TestABanKeepsItsEnd changes the length in the rule: a longer one revives no ban, and a shorter
// one ends none, neither in memory nor in another counter that has loaded the ban. The end follows
// from the original length, to the millisecond.
func TestABanKeepsItsEnd(t *testing.T) {
	for _, test := range []struct{ length, changed time.Duration }{
		{2 * time.Second, time.Hour}, {2 * time.Second, 24 * time.Hour},
		{time.Hour, 2 * time.Second}, {2 * time.Hour, 2 * time.Second},
		{24 * time.Hour, time.Minute}, {time.Hour, 24 * time.Hour},
	} {
		clk, store := &clock{now: t0 + 777}, embedded.New(embedded.Options{})
		c := open(t, syncer.Options{Now: clk.Now, Store: store})
		length, changed := test.length.Milliseconds(), test.changed.Milliseconds()
		op := banned("k", 2, length, 0, limits(1000, 1))
		res := do(t, c, op)
		end := res.Checks[1].Limits[0].Hi
		if end != clk.Now()+length {
			t.Fatalf("%+v: a ban of %d ms", test, end-clk.Now())
		}
		flush(t, c)
		other := open(t, syncer.Options{Now: clk.Now, Store: store})
		op = banned("k", 1, changed, 0, limits(1000, 1))
		op.DryRun = true
		for _, at := range []int64{t0 + 800, end - 1, end, end + 1000, end + 3_500_000} {
			clk.set(at)
			for of, c := range []*syncer.Counter{c, other} {
				if r := do(t, c, op).Checks[1]; r.Refused != (at < end) ||
					r.Refused && (r.Limits[0].Hi != end || r.RetryAfter != end-at) {
					t.Errorf("%+v: counter %d, %d ms before the end: %+v", test, of, end-at, r)
				}
			}
		}
	}
}

// TestTheLastBanCounts starts bans in two counters of a view, and takes one back.
func TestTheLastBanCounts(t *testing.T) {
	v := leaparray.View{Ladder: syncer.CompanionLadders()[twotier.BanNamespace], Now: t0}
	for _, end := range []int64{t0 - 5, t0 + 30, t0 + 7000, t0 + 86_400_000} {
		v.Put(&v.A, leaparray.Heap{}, leaparray.Moment(end), 1)
		v.Put(&v.B, leaparray.Heap{}, leaparray.Moment(end-1), 1)
		if got := decide.BanEnd(v); end > t0 && got != end || end < t0 && got != 0 {
			t.Errorf("the last ban ends %d ms from now, want %d", got-t0, end-t0)
		}
	}
	v.Put(&v.B, leaparray.Heap{}, leaparray.Moment(t0+86_400_000), -1)
	if got := decide.BanEnd(v); got != t0+86_399_999 {
		t.Errorf("the last ban ends %d ms from now", got-t0)
	}
}
