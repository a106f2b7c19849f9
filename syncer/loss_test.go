package syncer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// verifyEvery is how often the counters of these tests verify the store.
const verifyEvery = 100 * time.Millisecond

// company is some counters that count in one partition of one store. The first owns it.
type company struct {
	t        *testing.T
	store    *embedded.Store
	counters []*syncer.Counter
	owner    int
	visits   int
}

func newCompany(t *testing.T, n int, wrap func(syncer.Store) syncer.Store) *company {
	co := &company{t: t, store: embedded.New(embedded.Options{})}
	begin(co.store, 1)
	for i := range n {
		var s syncer.Store = co.store
		if wrap != nil {
			s = wrap(s)
		}
		co.counters = append(co.counters, co.open(s, fmt.Sprint("w", i), i > 0))
	}
	return co
}

// begin makes a store draw an epoch for some partitions, so that a counter does not take all keys
// for new from its first contact on.
func begin(s syncer.Store, partitions int) {
	for i := range partitions {
		s.Exchange(context.Background(), []*syncer.Round{{Writer: "founder", Partition: i}})
	}
}

func (co *company) open(s syncer.Store, name string, foreign bool) *syncer.Counter {
	return open(co.t, syncer.Options{
		Store: s, Writer: name, NotOwner: foreign, Placement: twotier.Placement{Partitions: 1},
		MaxRoundKeys:  2,
		FlushInterval: 10 * time.Millisecond, VerifyInterval: verifyEvery,
		Now: func() int64 { return t0 },
	})
}

// add counts at one of the counters.
func (co *company) add(at int, key string, n int64) {
	co.t.Helper()
	addIn(co.t, co.counters[at], key, n, 0)
}

// addIn counts at a counter that need not own the key.
func addIn(t *testing.T, c *syncer.Counter, key string, n, ts int64) {
	t.Helper()
	do(t, c, twotier.Op{Kind: twotier.Add, TS: ts, AllowNonOwner: true,
		Checks: []twotier.Check{checkOf(key, n)}})
}

// visit starts a counter, counts a key and closes the counter.
func (co *company) visit(key string, n int64) {
	co.t.Helper()
	co.visits++
	c := co.open(co.store, fmt.Sprint("visitor", co.visits), true)
	addIn(co.t, c, key, n, 0)
	if err := c.Close(context.Background()); err != nil {
		co.t.Fatal(err)
	}
}

// counts returns a counter's figure for a key.
func (co *company) counts(at int, key string) int64 {
	co.t.Helper()
	return do(co.t, co.counters[at], counting(key)).Checks[0].Limits[0].Hi
}

func counting(key string) twotier.Op {
	check := checkOf(key, 0)
	check.Limits = []twotier.Limit{{Window: 60_000}}
	return twotier.Op{Kind: twotier.Count, AllowNonOwner: true, Checks: []twotier.Check{check}}
}

// stored returns the store's count of a key.
func (co *company) stored(key string) int64 {
	return sumOf(key, co.store.Get(0, spaceOf(key), []byte(key)))
}

func (co *company) flush(at int) {
	co.t.Helper()
	flush(co.t, co.counters[at])
}

// settle waits until all have flushed and learned of all changes.
func (co *company) settle() {
	co.t.Helper()
	for range 2 {
		time.Sleep(5 * verifyEvery)
		for i := range co.counters {
			co.flush(i)
		}
	}
}

// holds compares the store, and every counter's figure, with the true count.
func (co *company) holds(key string, want int64) {
	co.t.Helper()
	if got := co.stored(key); got != want {
		co.t.Errorf("%s: the store has %d, want %d", key, got, want)
	}
	for i := range co.counters {
		if got := co.counts(i, key); got != want {
			co.t.Errorf("%s: counter %d says %d, want %d", key, i, got, want)
		}
	}
}

// TestRewindIsNoNews rewinds a store to before a change that one counter wrote and another only
// read.
func TestRewindIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := newCompany(t, 2, nil)
		co.add(0, "k", 8)
		co.flush(0)
		image := co.store.Image()
		co.add(0, "k", 2)
		co.flush(0)
		if got := co.counts(1, "k"); got != 10 {
			t.Fatalf("it reads %d", got)
		}
		if err := co.counters[0].Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		co.counters = co.counters[1:]
		co.store.Rewind(image)
		co.settle()
		co.holds("k", 10)
		if co.counters[0].Stats().LossesTotal != 1 {
			t.Errorf("%+v", co.counters[0].Stats())
		}
	})
}

// TestRewindBehindALoad rewinds a store to before a change that a counter has only loaded, without
// any news since. The counter restores the change, and so does the one it hands the partition to.
// If the store does not go back, the new owner learns that another key has changed, and reads it
// again.
func TestRewindBehindALoad(t *testing.T) {
	for _, tc := range []struct{ rewinds, hands bool }{{true, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRewindBehindALoad(t, tc.rewinds, tc.hands) })
		})
	}
}

func testRewindBehindALoad(t *testing.T, rewinds, hands bool) {
	var stores []*faultstore.Store
	co := newCompany(t, 2, func(inner syncer.Store) syncer.Store {
		s := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
		stores = append(stores, s)
		return s
	})
	co.add(0, "other", 1)
	co.settle()
	image := co.store.Image()
	stranger := co.open(co.store, "stranger", true)
	addIn(t, stranger, "k", 7, 0)
	others := int64(1)
	if !rewinds {
		addIn(t, stranger, "other", 2, 0)
		others += 2
	}
	if err := stranger.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := co.counts(0, "k"); got != 7 {
		t.Fatalf("it reads %d", got)
	}
	if rewinds {
		co.store.Rewind(image)
	}
	if hands {
		stores[0].SetDown(true) // the old owner can't verify
		time.Sleep(2 * verifyEvery)
		hand(t, co.counters[0], co.counters[1], 0, 1<<20)
		stores[0].SetDown(false)
	}
	co.settle()
	time.Sleep(3 * time.Second) // the store is tried again
	co.holds("k", 7)
	co.holds("other", others)
}

// TestRewindBehindWhatOthersWrote rewinds a store to before a change that a counter has only
// loaded, or received in a handoff, and others make more changes than were lost: the store's
// version is higher than before.
func TestRewindBehindWhatOthersWrote(t *testing.T) {
	for _, hands := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			co := newCompany(t, 2, nil)
			co.add(0, "other", 1)
			co.counts(1, "never counted")
			co.settle()
			image := co.store.Image()
			co.visit("k", 7)
			if got := co.counts(0, "k"); got != 7 {
				t.Fatalf("it reads %d", got)
			}
			if hands {
				hand(t, co.counters[0], co.counters[1], 0, 1<<20)
			}
			co.store.Rewind(image)
			for range 3 {
				co.visit("j", 2)
			}
			co.settle()
			co.holds("k", 7)
			co.holds("j", 6)
			co.holds("other", 1)
		})
	}
}

// TestCountsAddUpAfterALoss empties the store between two counters of one key, neither of which has
// seen all of it. Either of them may be the first to come back.
func TestCountsAddUpAfterALoss(t *testing.T) {
	for _, first := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			co := newCompany(t, 3, nil)
			co.add(0, "hot", 10)
			co.flush(0)
			co.add(1, "hot", 50)
			co.flush(1)
			co.store.Flush()
			co.add(2, "hot", 5) // of a counter that knows nothing
			co.flush(2)
			co.add(first, "hot", 20)
			co.flush(first)
			co.add(1-first, "hot", 30)
			co.flush(1 - first)
			co.settle()
			co.holds("hot", 115)
		})
	}
}

// again is a store that goes back once more, to an earlier image, after some parts of a
// restoration.
type again struct {
	syncer.Store
	parts  int
	rewind func()
}

func (s *again) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.Store.Exchange(ctx, rounds)
	for _, r := range rounds {
		if r.Republish && !r.Lost {
			if s.parts--; s.parts == 0 {
				s.rewind()
			}
		}
	}
}

// TestRewindWhileRepublishing: a second failover goes back to before the restoration that followed
// the first.
func TestRewindWhileRepublishing(t *testing.T) {
	for parts := 1; parts <= 5; parts++ {
		synctest.Test(t, func(t *testing.T) {
			s := &again{parts: parts}
			co := newCompany(t, 1, func(inner syncer.Store) syncer.Store {
				s.Store = inner
				return s
			})
			image := co.store.Image()
			s.rewind = func() { co.store.Rewind(image) }
			for i := range 9 {
				co.add(0, fmt.Sprint("k", i), int64(i+1))
				if co.flush(0); i == 4 {
					image = co.store.Image()
				}
			}
			co.store.Rewind(image)
			co.settle()
			for i := range 9 {
				co.holds(fmt.Sprint("k", i), int64(i+1))
			}
			if s.parts > 0 {
				t.Errorf("there were %d parts too few", s.parts)
			}
		})
	}
}

// TestHandoverAfterALoss hands a partition over after the store has lost everything, when one of
// the two counters, both or none have noticed.
func TestHandoverAfterALoss(t *testing.T) {
	for _, tc := range []struct{ giver, taker, down bool }{
		{false, false, false}, {true, false, false}, {false, true, false}, {true, true, false},
		{false, true, true},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { handAfterLoss(t, tc.giver, tc.taker, tc.down) })
		})
	}
}

func handAfterLoss(t *testing.T, giver, taker, down bool) {
	var stores []*faultstore.Store
	co := newCompany(t, 2, func(inner syncer.Store) syncer.Store {
		s := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
		stores = append(stores, s)
		return s
	})
	co.add(1, "other", 1) // it stood in once
	co.add(0, "k", 100)
	co.add(0, "both", 5)
	co.settle()
	co.add(1, "both", 7)
	co.settle()
	for i, s := range stores {
		s.SetDown(i == 0 && !giver || i == 1 && !taker)
	}
	co.store.Flush()
	time.Sleep(5 * verifyEvery)
	stores[0].SetDown(down) // the old owner can't verify
	if !down {
		time.Sleep(3 * time.Second) // until it tries again
	}
	co.add(0, "k", 3)
	stores[1].SetDown(false)
	hand(t, co.counters[0], co.counters[1], 0, 1<<20)
	stores[0].SetDown(false)
	co.settle()
	time.Sleep(3 * time.Second)
	co.settle()
	for key, want := range map[string]int64{"k": 103, "both": 12, "other": 1} {
		if got := co.stored(key); got != want {
			t.Errorf("%s: the store has %d, want %d", key, got, want)
		}
		if got := co.counts(1, key); got != want {
			t.Errorf("%s: the new owner says %d, want %d", key, got, want)
		}
	}
}

// TestWriterNameUsedTwice gives two counters one name at the same time, and later a third.
func TestWriterNameUsedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := embedded.New(embedded.Options{})
		twin := func() *syncer.Counter {
			return open(t, syncer.Options{Store: store, Writer: "twin",
				Placement: twotier.Placement{Partitions: 1}, FlushInterval: 10 * time.Millisecond})
		}
		a, b := twin(), twin()
		for range 20 {
			add(t, a, "k", 1, 0)
			add(t, b, "k", 1, 0)
			flush(t, a)
			flush(t, b)
		}
		c := twin()
		add(t, c, "k", 2, 0)
		flush(t, c)
		wantCount(t, c, "k", 86_400_000, 42)
	})
}
