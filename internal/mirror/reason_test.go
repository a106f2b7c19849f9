package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
)

const (
	window = int64(60_000)
	most   = int64(5)
	// start is in the middle of a minute.
	start = int64(1_800_000_030_000)
)

// entry is an event in a log.
type entry struct{ ts, n int64 }

// exactLog is a fake twotier: a log of timestamps for each key.
type exactLog struct {
	mu     sync.Mutex
	events map[string][]entry
	down   bool
	late   func() int64 // added to the time of each event
	banned string
	asked  []client.AcquireRequest
}

func newLog() *exactLog { return &exactLog{events: map[string][]entry{}} }

func (l *exactLog) Batch(_ context.Context, ops []client.Op) ([]client.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]client.Result, len(ops))
	for i := range ops {
		r := ops[i].Acquire
		l.asked = append(l.asked, *r)
		if l.down {
			results[i].Err = client.ErrUnavailable
			continue
		}
		results[i].Acquire = l.acquire(r)
	}
	return results, nil
}

func (l *exactLog) acquire(r *client.AcquireRequest) *client.AcquireAnswer {
	a := &client.AcquireAnswer{CheckAnswer: client.CheckAnswer{Allowed: true},
		Checks: make([]client.CheckAnswer, len(r.Checks))}
	ts := r.At.UnixMilli()
	if l.late != nil {
		ts += l.late()
	}
	for _, limit := range r.Limits {
		width := limit.Window.Milliseconds()
		s := client.LimitState{Window: limit.Window, Period: limit.Period, Max: limit.Max}
		for _, e := range l.events[r.Key] {
			if e.ts > ts-width && e.ts <= ts {
				s.Count += e.n
				if a.RetryAfter == 0 {
					a.RetryAfter = time.Duration(e.ts+width-ts) * time.Millisecond
				}
			}
		}
		s.Refused = s.Count+r.N > s.Max || r.Key == l.banned
		a.Allowed = a.Allowed && !s.Refused
		a.Limits = append(a.Limits, s)
	}
	if r.Key == l.banned {
		a.Bans = []client.Ban{{Rule: "ban", Key: r.Key}}
	}
	if a.Allowed {
		a.RetryAfter = 0
	}
	for i := range a.Limits {
		if r.Charge || a.Allowed {
			a.Limits[i].Count += r.N
		}
	}
	if r.Charge || a.Allowed && !r.DryRun {
		l.events[r.Key] = append(l.events[r.Key], entry{ts, r.N})
	}
	return a
}

// limiter is an old limiter of one key.
type limiter func(ts, n int64) bool

// sliding is a log with another limit, which may count refused events and has counted some before.
func sliding(most, before int64, countsRefused bool) limiter {
	list := []entry{{start - 1, before}}
	return func(ts, n int64) bool {
		sum := int64(0)
		for _, e := range list {
			if e.ts > ts-window {
				sum += e.n
			}
		}
		allowed := sum+n <= most
		if allowed || countsRefused {
			list = append(list, entry{ts, n})
		}
		return allowed
	}
}

func slidingOf(most, before int64, countsRefused bool) func() limiter {
	return func() limiter { return sliding(most, before, countsRefused) }
}

func fixedWindow() limiter {
	slot, count := int64(0), int64(0)
	return func(ts, n int64) bool {
		if ts/window != slot {
			slot, count = ts/window, 0
		}
		if count+n > most {
			return false
		}
		count += n
		return true
	}
}

func firstEventWindow() limiter {
	began, count := int64(0), int64(0)
	return func(ts, n int64) bool {
		if ts-began >= window {
			began, count = ts, 0
		}
		count += n
		return count <= most
	}
}

func weightedWindow() limiter {
	counts := map[int64]int64{}
	return func(ts, n int64) bool {
		slot := ts / window
		left := float64(window-ts%window) / float64(window)
		if float64(counts[slot-1])*left+float64(counts[slot]+n) > float64(most) {
			return false
		}
		counts[slot] += n
		return true
	}
}

// gcra is the algorithm of redis-cell: a theoretical arrival time.
func gcra() limiter {
	interval, tat := float64(window)/float64(most), 0.0
	return func(ts, n int64) bool {
		next := max(tat, float64(ts)) + interval*float64(n)
		if next-float64(window) > float64(ts) {
			return false
		}
		tat = next
		return true
	}
}

// traffic calls f with random events of a few keys: no pauses in the first minute, then some.
func traffic(random *rand.Rand, events int, f func(key string, ts, n int64)) {
	ts := start
	for i := range events {
		ts += random.Int64N(1500)
		if i > 100 && random.IntN(40) == 0 {
			ts += random.Int64N(2 * window)
		}
		f(fmt.Sprint("user:", random.IntN(4)), ts, 1)
	}
}

func open(t *testing.T, opt mirror.Options) *mirror.Mirror {
	t.Helper()
	opt.Default.Limits = []client.Limit{{Window: time.Duration(window) * time.Millisecond,
		Max: most}}
	if opt.Now == nil {
		opt.Now = func() time.Time { return time.UnixMilli(start) }
	}
	m, err := mirror.New(opt)
	must.Succeed(t, err)
	m.Open(t.Context())
	t.Cleanup(func() { m.Close(context.Background()) })
	return m
}

func one(key string, ts, n int64, allowed bool) []mirror.Verdict {
	return []mirror.Verdict{{Checks: []client.Check{{Key: key, N: n}}, At: ts, Allowed: allowed}}
}

// TestReasons mirrors each kind of limiter over random traffic: the report must agree with a log of
// timestamps, name the kind of every other one, and give it as the reason for the differences.
func TestReasons(t *testing.T) {
	for name, c := range map[string]struct {
		limiter func() limiter
		want    mirror.Reason // "" if it always agrees
		model   bool          // the reason is also the best model
		denied  bool
	}{
		"log":                    {limiter: slidingOf(most, 0, false)},
		"fixed window":           {fixedWindow, mirror.FixedWindow, true, false},
		"first event":            {firstEventWindow, mirror.FirstEventWindow, true, false},
		"weighted":               {weightedWindow, mirror.WeightedWindow, true, false},
		"token bucket":           {gcra, mirror.TokenBucket, true, false},
		"counts refused":         {slidingOf(most, 0, true), mirror.CountsRefused, true, false},
		"counted, as by twotier": {limiter: slidingOf(most, 0, true), denied: true},
		"lower limit":            {slidingOf(3, 0, false), mirror.OtherLimit, false, false},
		"higher limit":           {slidingOf(7, 0, false), mirror.OtherLimit, false, false},
		"counts before":          {slidingOf(most, 4, false), mirror.Unseen, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := seed.First()
			t.Logf("TWOTIER_TEST_FIRST=%d", first)
			m := open(t, mirror.Options{Twotier: newLog(), CountDenied: c.denied})
			old := map[string]limiter{}
			differ := 0
			traffic(rand.New(rand.NewPCG(first, 0)), 4000, func(key string, ts, n int64) {
				if old[key] == nil {
					old[key] = c.limiter()
				}
				differ += m.Accept(one(key, ts, n, old[key](ts, n)))
			})
			m.Close(t.Context())
			judge(t, m.Report(), c.want, c.model)
		})
	}
}

func judge(t *testing.T, r *mirror.Report, want mirror.Reason, model bool) {
	t.Helper()
	if r.Compared != 4000 || r.Agreed+r.Stricter+r.Looser != r.Compared || r.Waiting != 0 {
		t.Errorf("the numbers are wrong: %s", r.Summary())
	}
	if want == "" {
		if r.Agreement != 1 || len(r.Keys)+len(r.Reasons) != 0 {
			t.Errorf("it does not agree:\n%s", r)
		}
		return
	}
	if r.Agreement == 1 || len(r.Keys) != 4 {
		t.Fatalf("want differences of all keys:\n%s", r)
	}
	if share := float64(r.Reasons[0].Differences) / float64(r.Stricter+r.Looser); share < 0.99 ||
		r.Reasons[0].Reason != want || r.Keys[0].Reason != want {
		t.Errorf("want the reason %s:\n%s", want, r)
	}
	if best := r.Models[0]; model && (best.Model != want || best.Share < 0.999) {
		t.Errorf("want the model %s: %v", want, r.Models)
	}
	if !strings.Contains(r.String(), string(want)) {
		t.Errorf("the text does not name %s:\n%s", want, r)
	}
}

// TestOtherLimitNamesTheNumber checks the estimate of the old limiter's limit.
func TestOtherLimitNamesTheNumber(t *testing.T) {
	m := open(t, mirror.Options{Twotier: newLog()})
	old := sliding(3, 0, false)
	for ts := start; ts < start+5*window; ts += 4000 {
		m.Accept(one("ann", ts, 1, old(ts, 1)))
	}
	m.Close(t.Context())
	if r := m.Report(); !strings.HasSuffix(r.Reasons[0].Text, "another limit: 3 in 1m, and not 5") {
		t.Errorf("want the number 3: %v", r.Reasons)
	}
}

// TestDifferencesDoNotFeedThemselves checks that twotier counts every event that the old limiter
// has allowed, whatever its own verdict.
func TestDifferencesDoNotFeedThemselves(t *testing.T) {
	log := newLog()
	m := open(t, mirror.Options{Twotier: log})
	for i := range int64(20) {
		m.Accept(one("ann", start+i, 1, i%2 == 0))
	}
	m.Close(t.Context())
	if n := len(log.events["ann"]); n != 10 {
		t.Errorf("twotier has counted %d events, want the 10 that were allowed", n)
	}
	for _, r := range log.asked {
		if r.Charge == r.DryRun {
			t.Errorf("want either a charge or a dry run: %+v", r)
		}
	}
	// With 5 allowed, twotier refuses the other 5 allowed ones. It allows the first 4 refused ones.
	if r := m.Report(); r.Stricter != 5 || r.Looser != 4 {
		t.Errorf("want 5 stricter and 4 looser: %s", r.Summary())
	}
}

// TestReasonsOfTheComparison checks the reasons that are not the old limiter's kind.
func TestReasonsOfTheComparison(t *testing.T) {
	t.Run("errors", func(t *testing.T) {
		log := newLog()
		log.down = true
		m := open(t, mirror.Options{Twotier: log})
		old := sliding(most, 0, false)
		for i := range int64(4) {
			m.Accept(one("ann", start+2*window+i, 1, old(start+2*window+i, 1)))
		}
		until(t, func() bool { return m.Report().Errors == 4 })
		log.mu.Lock()
		log.down = false
		log.mu.Unlock()
		for i := int64(4); i < 8; i++ {
			m.Accept(one("ann", start+2*window+i, 1, old(start+2*window+i, 1)))
		}
		m.Close(t.Context())
		r := m.Report()
		if r.Looser != 3 || r.Reasons[0].Reason != mirror.Lost ||
			!strings.Contains(r.LastError, client.ErrUnavailable.Error()) {
			t.Errorf("want 3 differences because of errors:\n%s", r)
		}
	})
	t.Run("ban", func(t *testing.T) {
		log := newLog()
		log.banned = "ann"
		m := open(t, mirror.Options{Twotier: log})
		m.Accept(one("ann", start, 1, true))
		m.Close(t.Context())
		// The models of limiters would have allowed it as well; a ban goes first.
		if r := m.Report(); r.Stricter != 1 || r.Reasons[0].Reason != mirror.Banned {
			t.Errorf("want a ban as the reason:\n%s", r)
		}
	})
	t.Run("clock", func(t *testing.T) {
		first := seed.First()
		t.Logf("TWOTIER_TEST_FIRST=%d", first)
		random := rand.New(rand.NewPCG(first, 0))
		log := newLog()
		log.late = func() int64 { return -random.Int64N(500) }
		m := open(t, mirror.Options{Twotier: log})
		old := map[string]limiter{}
		traffic(rand.New(rand.NewPCG(first, 1)), 2000, func(key string, ts, n int64) {
			if old[key] == nil {
				old[key] = sliding(most, 0, false)
			}
			m.Accept(one(key, ts, n, old[key](ts, n)))
		})
		m.Close(t.Context())
		r := m.Report()
		if len(r.Reasons) == 0 || r.Reasons[0].Reason != mirror.Edge ||
			float64(r.Reasons[0].Differences) < 0.9*float64(r.Stricter+r.Looser) {
			t.Errorf("want the edge as the reason:\n%s", r)
		}
	})
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute")
		}
	}
}

// errBatch is the error of a whole batch.
var errBatch = errors.New("all of it")
