package syncer_test

import (
	"context"
	"sync"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
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
