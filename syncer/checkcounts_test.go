package syncer_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestCheckCounts checks buckets as a store may return them.
func TestCheckCounts(t *testing.T) {
	at := func(start, n int64) syncer.Bucket {
		return syncer.Bucket{Stretch: leaparray.Moment(start), N: n}
	}
	for name, tc := range map[string]struct {
		held []syncer.Bucket
		ok   bool
	}{
		"nothing":    {nil, true},
		"counts":     {[]syncer.Bucket{at(1, 5), at(2, 1<<61)}, true},
		"below zero": {[]syncer.Bucket{at(1, 5), at(2, -7)}, true},
		"far below zero": {[]syncer.Bucket{at(1, math.MinInt64+1), at(2, 1)},
			true},
		"no number": {[]syncer.Bucket{at(1, 5), at(2, syncer.NoCount)}, false},
		"too many": {[]syncer.Bucket{at(1, 1<<62), at(2, -7), at(3, 1)},
			false},
	} {
		if err := syncer.CheckCounts(tc.held); (err == nil) != tc.ok ||
			err != nil && !errors.Is(err, syncer.ErrNotApplied) {
			t.Errorf("%s: %v, want no error: %v", name, err, tc.ok)
		}
	}
}

// TestTakenBackTwice has two counters take back the same events. One of them gets the news in a
// round that does not yet include its own part. It must never report a negative count.
func TestTakenBackTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := newCompany(t, 1, nil)
		late := &slow{Store: co.store, sent: make(chan struct{}), answer: make(chan struct{})}
		co.counters = append(co.counters, open(t, syncer.Options{Store: late, Writer: "late",
			NotOwner: true, Placement: twotier.Placement{Partitions: 1}, FlushInterval: time.Hour,
			MaxRoundKeys: 2, Now: func() int64 { return t0 }}))
		co.add(0, "k", 5)
		co.flush(0)
		co.counts(1, "k")
		for _, other := range []string{"a", "b", "c", "d"} { // two rounds that are sent first
			co.add(1, other, 100)
		}
		co.add(1, "k", -5)
		co.add(0, "k", -5)
		co.flush(0)
		late.hold.Store(true)
		var flushed sync.WaitGroup
		flushed.Go(func() { flush(t, co.counters[1]) })
		<-late.sent
		late.hold.Store(true)
		late.answer <- struct{}{} // with the news
		<-late.sent
		res := do(t, co.counters[1], twotier.Op{Kind: twotier.Count, AllowNonOwner: true,
			Checks: []twotier.Check{{Key: []byte("k"), Limits: []twotier.Limit{{Window: 30_000}}}}})
		if l := res.Checks[0].Limits[0]; l.Count != 0 || l.Lo != 0 || l.Hi != 0 {
			t.Errorf("before it is flushed: %+v", l)
		}
		late.answer <- struct{}{}
		flushed.Wait()
		if got := co.stored("k"); got != -5 {
			t.Errorf("the store has %d, want -5", got)
		}
		for i := range co.counters {
			if got := co.counts(i, "k"); got != 0 {
				t.Errorf("counter %d says %d", i, got)
			}
		}
	})
}
