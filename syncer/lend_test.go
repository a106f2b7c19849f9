package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

// borrower is a counter that borrows a key, with its loan request and its number of admissions.
type borrower struct {
	*syncer.Counter
	q        twotier.LoanRequest
	dead     bool
	heldUp   atomic.Bool  // its rounds
	skew     atomic.Int64 // of its clock, in ms
	admitted int64
}

// loans is counters that lend each other one key, and a list of all their admissions.
type loans struct {
	t        *testing.T
	rnd      *rand.Rand
	store    *embedded.Store
	limits   []twotier.Limit
	owner    int
	counters []*borrower
	admitted []time.Time
	names    int
	stepped  atomic.Int64 // how far the right time was stepped, in ns
}

// now returns the time on a correct clock.
func (l *loans) now() time.Time { return time.Now().Add(time.Duration(l.stepped.Load())) }

// laggard is a store whose answers, and their content, are old when they arrive. While it is held
// up no round reaches it.
type laggard struct {
	syncer.Store
	age    func() time.Duration
	heldUp *atomic.Bool
}

func (s *laggard) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for s.heldUp.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	s.Store.Exchange(ctx, rounds)
	time.Sleep(s.age())
}

// aged returns an age of up to 80 ms, or now and then of up to 500 ms. Stores call it at the same
// time, in any order.
func aged() time.Duration {
	if rand.IntN(4) == 0 {
		return rand.N(500 * time.Millisecond)
	}
	return rand.N(80 * time.Millisecond)
}

// newLoans returns three counters, the first of which is the owner. age holds the ages of their
// stores' answers; if it is nil, aged draws them.
func newLoans(t *testing.T, seed uint64, age []time.Duration, limits ...twotier.Limit) *loans {
	l := &loans{t: t, rnd: rand.New(rand.NewPCG(seed, 13)), limits: limits,
		store: embedded.New(embedded.Options{})}
	for i := range 3 {
		old := aged
		if age != nil {
			old = func() time.Duration { return age[i] }
		}
		b := new(borrower)
		b.Counter = open(t, syncer.Options{
			Store:     &laggard{l.store, old, &b.heldUp},
			Now:       func() int64 { return l.now().UnixMilli() + b.skew.Load() },
			Placement: twotier.Placement{Partitions: 1}, FlushInterval: 100 * time.Millisecond,
			NotOwner: i > 0, Exchanges: 1,
		})
		t.Cleanup(func() { b.heldUp.Store(false) })
		l.counters = append(l.counters, b)
	}
	return l
}

// prepare completes the next request of a counter. It reports false if the loan no longer exists.
func (l *loans) prepare(b *borrower, spare int64) (asked time.Time, ok bool) {
	if b.q.Loan == "" {
		l.names++
		b.q = twotier.LoanRequest{Key: []byte("hot"), Limits: l.limits, Loan: fmt.Sprint(l.names)}
	}
	asked = time.Now()
	if _, ok = b.FillLoanRequest(&b.q, spare); !ok {
		b.q.Loan = ""
	}
	return asked, ok
}

// ask makes a counter ask the owner for a loan.
func (l *loans) ask(b *borrower, spare int64) {
	l.t.Helper()
	asked, ok := l.prepare(b, spare)
	if !ok {
		l.t.Fatal("the loan is not known")
	}
	a, err := l.counters[l.owner].Lend(l.t.Context(), &b.q)
	if err != nil {
		l.t.Fatal(err)
	}
	b.AcceptLoan(&b.q, &a, asked)
}

// acquire acquires one, and returns the source of the verdict, or "" if there was none.
func (l *loans) acquire(b *borrower) twotier.Source {
	op := twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{{Key: []byte("hot"), N: 1, Limits: l.limits}}}
	var res twotier.Result
	asked := l.now().Truncate(time.Millisecond) // the time that counts, even if the answer is late
	err := b.Do(l.t.Context(), &op, &res)
	switch {
	case errors.Is(err, twotier.ErrNotOwner):
		return ""
	case err != nil:
		l.t.Fatal(err)
	case res.Allowed:
		l.admitted = append(l.admitted, asked)
		b.admitted++
	}
	return res.Source
}

// drain acquires until it is refused.
func (l *loans) drain(b *borrower) {
	for before := int64(-1); b.admitted > before; {
		before = b.admitted
		l.acquire(b)
	}
}

// check fails if the admissions in any window exceed a limit.
func (l *loans) check() {
	for _, limit := range l.limits {
		window := time.Duration(limit.Window) * time.Millisecond
		from := 0
		for i, at := range l.admitted {
			for at.Sub(l.admitted[from]) >= window {
				from++
			}
			if n := int64(i - from + 1); n > limit.Max {
				l.t.Fatalf("%d admitted in %v, the limit is %d", n, window, limit.Max)
			}
		}
	}
}

// prompt holds the ages of answers from a store that answers at once.
var prompt = make([]time.Duration, 3)

// TestBorrowedEventsAreAdmittedWithoutTheOwner borrows, uses and repays, and checks the figures of
// each side.
func TestBorrowedEventsAreAdmittedWithoutTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoans(t, 1, prompt, twotier.Limit{Window: 60_000, Max: 10_000})
		b, owner := l.counters[1], l.counters[0]
		if source := l.acquire(b); source != "" {
			t.Fatalf("decides (%s) without a loan", source)
		}
		l.ask(b, 100)
		for range 100 {
			if source := l.acquire(b); source != twotier.SourceNear {
				t.Fatalf("%q within the loan", source)
			}
		}
		if source := l.acquire(b); source != "" || b.admitted != 100 {
			t.Errorf("%q beyond the loan, %d admitted", source, b.admitted)
		}
		res := acquireHot(t, owner.Counter, l.limits)
		if r := res.Checks[0].Limits[0]; r.Count != 1 || r.Hi != 101 {
			t.Errorf("the owner says %+v while 100 are lent", r)
		}
		time.Sleep(time.Second)
		l.ask(b, 0) // reports the flushed counts
		time.Sleep(300 * time.Millisecond)
		res = acquireHot(t, owner.Counter, l.limits)
		if r := res.Checks[0].Limits[0]; r.Count != 102 || r.Hi != 102 {
			t.Errorf("the owner says %+v after all was repaid", r)
		}
		if !b.EndLoan(&b.q) {
			t.Error("the loan does not end")
		}
	})
}

func acquireHot(t *testing.T, c *syncer.Counter, limits []twotier.Limit) (res twotier.Result) {
	t.Helper()
	op := twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{{Key: []byte("hot"), N: 1, Limits: limits}}}
	if err := c.Do(t.Context(), &op, &res); err != nil {
		t.Fatal(err)
	}
	return res
}

// TestALoanEnds covers the ends of a loan's use: time and a pause, even one that is over.
func TestALoanEnds(t *testing.T) {
	for name, end := range map[string]func(b *borrower){
		"time":    func(*borrower) { time.Sleep(twotier.LoanTime) },
		"a pause": func(b *borrower) { b.SetBorrowingPaused(true) },
		"a pause that is over": func(b *borrower) {
			b.SetBorrowingPaused(true)
			b.SetBorrowingPaused(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoans(t, 1, prompt, twotier.Limit{Window: 60_000, Max: 10_000})
				b := l.counters[1]
				l.ask(b, 100)
				if l.acquire(b) != twotier.SourceNear {
					t.Fatal("nothing was lent")
				}
				end(b)
				if source := l.acquire(b); source != "" {
					t.Errorf("decides (%s) after the end", source)
				}
			})
		})
	}
}

// TestWhatALoanDoesNotCover tries operations that only the owner can execute.
func TestWhatALoanDoesNotCover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoans(t, 1, prompt, twotier.Limit{Window: 60_000, Max: 10_000})
		b := l.counters[1]
		l.ask(b, 100)
		check := func(n int64, limits ...twotier.Limit) []twotier.Check {
			return []twotier.Check{{Key: []byte("hot"), N: n, Limits: limits}}
		}
		for name, op := range map[string]twotier.Op{
			"taking back": {Checks: check(-1)},
			"the past":    {TS: 1, Checks: check(1)},
			"other limits": {Kind: twotier.Acquire,
				Checks: check(1, twotier.Limit{Window: 60_000, Max: 9_999})},
			"too many": {Kind: twotier.Acquire, Checks: check(101, l.limits...)},
			"refused ones are counted": {Kind: twotier.Acquire, CountDenied: true,
				Checks: check(1, l.limits...)},
			"counts, then compares": {Checks: check(1, l.limits...)},
			"another key":           {Checks: []twotier.Check{{Key: []byte("cold"), N: 1}}},
			"a calendar window": {Kind: twotier.Acquire,
				Checks: check(1, twotier.Limit{Max: 10_000, Period: period(t, "day")})},
		} {
			if op.TS != 0 {
				op.TS = l.now().UnixMilli() - 1000
			}
			var res twotier.Result
			if err := b.Do(t.Context(), &op, &res); !errors.Is(err, twotier.ErrNotOwner) {
				t.Errorf("%s: %v, want ErrNotOwner", name, err)
			}
		}
	})
}

// TestOnlyWhatTheOwnerHasReadIsRepaid has the owner read slowly: the counts that the borrower
// reports as flushed were not in the store yet when the store made the next answer to reach the
// owner.
func TestOnlyWhatTheOwnerHasReadIsRepaid(t *testing.T) {
	for wait := range 8 {
		synctest.Test(t, func(t *testing.T) {
			l := newLoans(t, 1, []time.Duration{500 * time.Millisecond, 0, 0},
				twotier.Limit{Window: 60_000, Max: 1600})
			b, owner := l.counters[1], l.counters[0]
			l.ask(b, 200)
			time.Sleep(time.Duration(wait) * 50 * time.Millisecond)
			for range 200 {
				l.acquire(b)
			}
			time.Sleep(150 * time.Millisecond)
			l.ask(b, 0)
			for range 20 {
				l.drain(owner)
				time.Sleep(100 * time.Millisecond)
			}
			if l.check(); b.admitted != 200 || owner.admitted != 1400 {
				t.Errorf("%d and %d admitted", b.admitted, owner.admitted)
			}
		})
	}
}

// TestDeadLoanCountsForItsWindow lets a borrower die with its loan, none of which reached the
// store. The owner refuses as if all of it had been counted at the last moment, for exactly a
// window.
func TestDeadLoanCountsForItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoans(t, 1, prompt, twotier.Limit{Window: 10_000, Max: 1600})
		l.ask(l.counters[1], 200)
		l.drain(l.counters[0])
		if n := l.counters[0].admitted; n != 1400 {
			t.Fatalf("the owner admits %d beside 200 that are lent", n)
		}
		time.Sleep(11 * time.Second) // its own have left the window
		l.drain(l.counters[0])
		if n := l.counters[0].admitted; n != 2800 {
			t.Errorf("%d admitted while what was lent may be in the window", n)
		}
		time.Sleep(13 * time.Second)
		l.drain(l.counters[0])
		if n := l.counters[0].admitted; n != 2800+1600 {
			t.Errorf("%d admitted after it", n)
		}
	})
}

// hand hands the partition over.
func (l *loans) hand(to *borrower) {
	to.heldUp.Store(false)
	hand(l.t, l.counters[l.owner].Counter, to.Counter, 0, 1<<20)
	l.owner = slices.Index(l.counters, to)
}

// TestTimeOfABorrowedEvent: a counter whose clock is behind the owner's counts at the owner's time,
// and returns that time, so that taking back at it undoes the event.
func TestTimeOfABorrowedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoans(t, 1, prompt, twotier.Limit{Window: 60_000, Max: 10_000})
		b := l.counters[1]
		l.ask(b, 100)
		l.stepped.Store(-int64(300 * time.Millisecond))
		for _, op := range []twotier.Op{
			{Checks: []twotier.Check{{Key: []byte("hot"), N: 1}}},
			{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("hot"), N: 1,
				Limits: l.limits}}},
		} {
			var res twotier.Result
			if err := b.Do(t.Context(), &op, &res); err != nil || res.Source != twotier.SourceNear {
				t.Fatalf("%v, source %s", err, res.Source)
			}
			if ahead := res.Checks[0].TS - l.now().UnixMilli(); ahead < 300 {
				t.Errorf("%d ms ahead of the own clock, want those of the owner", ahead)
			}
		}
	})
}
