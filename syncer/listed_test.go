package syncer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// keyLists is a store that records until when the keys have to be listed, and until when they
// certainly are.
type keyLists struct {
	syncer.Store
	t      testing.TB
	now    func() int64
	ladder *leaparray.Ladder

	mu     sync.Mutex
	epochs map[int]uint64               // by partition
	keys   map[int]map[string]*listedAs // by partition
	listed int                          // how often keys were listed
}

// listedAs holds until when a key is listed, and when the last window that reaches it ends.
type listedAs struct{ until, reached int64 }

func newKeyLists(t testing.TB, s syncer.Store, now func() int64, l *leaparray.Ladder) *keyLists {
	return &keyLists{Store: s, t: t, now: now, ladder: l, epochs: map[int]uint64{},
		keys: map[int]map[string]*listedAs{}}
}

// ListKeys implements syncer.Lister with the wrapped store.
func (s *keyLists) ListKeys(ctx context.Context, lists []*syncer.KeyList) {
	s.Store.(syncer.Lister).ListKeys(ctx, lists)
}

func (s *keyLists) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Store.Exchange(ctx, rounds)
	for _, r := range rounds {
		// The list may be lost. A store that has lost everything may still go back in time.
		if r.Err == nil && !r.Lost && r.Epoch != s.epochs[r.Partition] {
			s.epochs[r.Partition] = r.Epoch
			s.keys[r.Partition] = map[string]*listedAs{}
		}
	}
	for _, r := range rounds {
		for i := range r.Keys {
			if r.Err == nil && r.Keys[i].Err == nil && !r.Lost && !r.Used && !r.Later {
				s.take(s.keys[r.Partition], &r.Keys[i])
			}
		}
	}
}

// take records the part of a key that the store has carried out.
func (s *keyLists) take(keys map[string]*listedAs, k *syncer.KeyRound) {
	if len(k.NS) > 0 {
		return
	}
	as := keys[string(k.Key)]
	if as == nil {
		as = new(listedAs)
		keys[string(k.Key)] = as
	}
	if k.Reset {
		as.reached = 0
	}
	if k.Renew && !k.Listed {
		s.listed++
		as.until = max(as.until, s.now()+syncer.ListTTL(k.TTL))
	}
	for _, b := range k.Adds {
		// A copy that comes after a reset counts nothing, and the store has none of it.
		if b.N > 0 && b.Stored > 0 {
			as.reached = max(as.reached, b.End()+2*s.ladder.Span())
		}
	}
}

// check reports keys that are not listed for long enough. A round that was cut before a loss may
// leave its keys to the next one, so all must have been flushed.
func (s *keyLists) check() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, keys := range s.keys {
		for key, as := range keys {
			if now := s.now(); as.until < as.reached && now < as.reached {
				s.t.Errorf("%q is listed for %d ms, and has a count that matters for %d ms", key,
					as.until-now, as.reached-now)
			}
		}
	}
}

// TestBusyKeyIsListedFourTimesADay counts a key in every bucket of the coarsest level for two
// spans.
func TestBusyKeyIsListedFourTimesADay(t *testing.T) {
	clk, l := &clock{now: t0}, leaparray.Default()
	width, first := l.CoarsestWidth(), int64(t0)/l.CoarsestWidth()
	lists := newKeyLists(t, embedded.New(embedded.Options{}), clk.Now, l)
	c := open(t, syncer.Options{Store: lists, Now: clk.Now,
		Placement: twotier.Placement{Partitions: 1}})
	for i := range int64(2 * 96) {
		clk.set(t0 + i*width)
		addIn(t, c, "busy", 1, 0)
		flush(t, c)
	}
	if want := (first+2*96-1)/24 - first/24 + 1; int64(lists.listed) != want {
		t.Errorf("the key was listed %d times in two spans, want %d", lists.listed, want)
	}
}

// TestTheLongestListGivesWay: when keys need the memory that other keys' hashes take, and no
// partition has more than its share, the partition with the most hashes gives them up, and no other
// one. Its keys are read again then, and its list only after a while.
func TestTheLongestListGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, long, short = 4, 1500, 50
		place := twotier.Placement{Partitions: partitions}
		p := &duo{t: t, store: newClerk()}
		for i := range p.c {
			p.c[i] = open(t, syncer.Options{Store: p.store, Placement: place, NotOwner: i > 0,
				FlushInterval: 10 * time.Millisecond, VerifyInterval: verifyEvery,
				MaxMemory: []int64{192 << 10, 0}[i]})
		}
		name := func(i int, what string) string {
			return keyIn(place, i%partitions, fmt.Sprint(what, i/partitions, "-"))
		}
		old := func(i int) string { return keyIn(place, 0, fmt.Sprint("old-", i, "-")) }
		for i := range long {
			addIn(t, p.c[1], old(i), 2, 0)
		}
		for i := range partitions * short {
			addIn(t, p.c[1], name(i, "some-"), 2, 0)
		}
		flush(t, p.c[1])
		for i := range partitions * 3 {
			p.take(0, name(i, "first-"))
			time.Sleep(verifyEvery / 2)
		}
		before := p.c[0].Listed()
		for i, n := range before {
			if want := map[bool]int{true: long + short, false: short}[i == 0]; n < want {
				t.Fatalf("%d hashes of partition %d, want %d", n, i, want)
			}
		}
		for i := 0; p.c[0].Listed()[0] > 0 && i < 10_000; i++ {
			add(t, p.c[0], name(i, "new-"), 1, 0)
			time.Sleep(5 * time.Millisecond) // so that the sweep runs, and new keys are flushed
		}
		after := p.c[0].Listed()
		for i, n := range before {
			if i == 0 && after[i] > 0 || i > 0 && after[i] < n {
				t.Errorf("partition %d had %d hashes and has %d", i, n, after[i])
			}
		}
		if n := p.c[0].ReserveUsed(); n > 0 {
			t.Errorf("%d bytes of the reserve are still in use", n)
		}
		p.store.forget()
		for i := range 20 {
			if p.take(0, old(i)) {
				t.Errorf("%s is taken for new though it is full", old(i))
			}
			time.Sleep(verifyEvery)
		}
		if reads, begun, _ := p.store.counted(); len(reads) < 20 || begun > 0 {
			t.Errorf("%d keys were read, and %d lists", len(reads), begun)
		}
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			p.take(0, old(20+i))
			time.Sleep(verifyEvery)
		}
		if _, begun, _ := p.store.counted(); begun == 0 {
			t.Error("the list is not read again")
		}
	})
}
