package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

// clerk is a store that counts the reads of keys and of its lists.
type clerk struct {
	*embedded.Store
	around        func(read func()) // reads the first list, nil if nothing else happens then
	mu            sync.Mutex
	reads         map[string]int
	begun, hashes int
}

func newClerk() *clerk {
	return &clerk{Store: embedded.New(embedded.Options{}), reads: map[string]int{}}
}

func (s *clerk) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.mu.Lock()
	for _, r := range rounds {
		for i := range r.Keys {
			if r.Keys[i].Load {
				s.reads[string(r.Keys[i].Key)]++
			}
		}
	}
	s.mu.Unlock()
	s.Store.Exchange(ctx, rounds)
}

func (s *clerk) ListKeys(ctx context.Context, lists []*syncer.KeyList) {
	read := func() { s.Store.ListKeys(ctx, lists) }
	if around := s.around; around != nil {
		s.around = nil
		around(read)
	} else {
		read()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lists {
		if l.Begun || int(l.Offset) == len(l.Hashes) {
			s.begun++
		}
		s.hashes += len(l.Hashes)
	}
}

// counted returns the clerk's counts: keys read, lists begun, and hashes read.
func (s *clerk) counted() (reads map[string]int, begun, hashes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.reads), s.begun, s.hashes
}

// forget resets the clerk's counts.
func (s *clerk) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads, s.begun, s.hashes = map[string]int{}, 0, 0
}

// duo is two counters that use one store: the first owns its only partition, and the second may
// count in its place.
type duo struct {
	t     *testing.T
	store *clerk
	c     [2]*syncer.Counter
}

// newDuo returns a duo whose lists have to be read.
func newDuo(t *testing.T, memory, maxKeys int64) *duo {
	p := newDuoOf(t, memory, maxKeys)
	begin(p.store.Store, 1)
	return p
}

// newDuoOf returns a duo whose store is empty.
func newDuoOf(t *testing.T, memory, maxKeys int64) *duo {
	p := &duo{t: t, store: newClerk()}
	for i := range p.c {
		p.c[i] = open(t, syncer.Options{Store: p.store, Placement: twotier.Placement{Partitions: 1},
			FlushInterval: 10 * time.Millisecond, VerifyInterval: verifyEvery, NotOwner: i > 0,
			MaxMemory:  memory,
			Namespaces: map[string]syncer.Namespace{"default": {MaxKeys: maxKeys}}})
	}
	return p
}

// take acquires one of a key's two at one of the counters, and reports whether it was admitted. If
// memory is full of keys at their limits, it waits until they may be evicted.
func (p *duo) take(at int, key string) bool {
	p.t.Helper()
	for {
		var res twotier.Result
		err := p.c[at].Do(p.t.Context(), &twotier.Op{Kind: twotier.Acquire, AllowNonOwner: true,
			Checks: []twotier.Check{{Key: []byte(key), N: 1, Limits: limits(3_600_000, 2)}}}, &res)
		switch {
		case err == nil:
			return res.Allowed
		case !errors.Is(err, twotier.ErrOverload):
			p.t.Fatal(err)
		}
		time.Sleep(time.Minute)
	}
}

// settle makes the owner read the list of keys, and waits until it has.
func (p *duo) settle(name string) {
	for i := range 3 {
		p.take(0, fmt.Sprint(name, i))
		time.Sleep(verifyEvery / 2)
	}
	p.store.forget()
}

// TestNewKeysCostNoRead: once a counter has read the store's list of keys, it reads the listed
// keys, and no others.
func TestNewKeysCostNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newDuo(t, 0, 0)
		for i := range 200 {
			p.take(1, fmt.Sprint("old-", i))
		}
		flush(t, p.c[1])
		p.settle("first-")
		for i := range 100 {
			p.take(0, fmt.Sprint("new-", i))
			add(t, p.c[0], fmt.Sprint("added-", i), 1, 0)
			if i%10 == 0 {
				time.Sleep(verifyEvery / 2)
			}
		}
		flush(t, p.c[0])
		reads, _, _ := p.store.counted()
		for name, n := range reads {
			t.Errorf("%s was read %d times", name, n)
		}
		for i := range 200 {
			key := fmt.Sprint("old-", i)
			if first, second := p.take(0, key), p.take(0, key); !first || second {
				t.Errorf("%s: admitted %v, %v", key, first, second)
			}
		}
		if n := p.c[0].Stats().UnreadTotal; n < 200 {
			t.Errorf("%d keys were not read", n)
		}
	})
}

// TestEvictedKeysAreNotNew fills memory, so that keys are evicted: they are read back, and no limit
// is exceeded.
func TestEvictedKeysAreNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newDuo(t, 128<<10, 0)
		p.settle("first-")
		const keys = 1200
		for round, want := range []bool{true, true, false} {
			for i := range keys {
				if got := p.take(0, fmt.Sprint("k-", i)); got != want {
					t.Fatalf("key %d is admitted: %v the %d. time", i, got, round+1)
				}
				if i%40 == 0 {
					time.Sleep(5 * time.Second) // until then nothing is evicted
				}
			}
		}
		s := p.c[0].Stats()
		if s.EvictedTotal < keys || s.UnreadTotal < keys/2 {
			t.Errorf("%d keys were evicted, and %d not read", s.EvictedTotal, s.UnreadTotal)
		}
	})
}

// TestWhatOthersBeginIsSeen has another counter fill a key that the owner's list does not have: the
// owner sees it within the verify interval, and reads only the list's later entries.
func TestWhatOthersBeginIsSeen(t *testing.T) {
	for name, quiet := range map[string]bool{"counted": false, "counted quietly": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testWhatOthersBegin(t, quiet) })
		})
	}
}

func testWhatOthersBegin(t *testing.T, quiet bool) {
	p := newDuo(t, 0, 0)
	for i := range 500 {
		p.take(1, fmt.Sprint("old-", i))
	}
	flush(t, p.c[1])
	if quiet { // quiet changes are then no news
		p.take(0, "shared")
		if err := p.c[0].Share(nil, []byte("shared"), true); err != nil {
			t.Fatal(err)
		}
		if err := p.c[1].Share(nil, []byte("k"), true); err != nil {
			t.Fatal(err)
		}
	}
	p.settle("first-")
	p.take(1, "k")
	p.take(1, "k")
	flush(t, p.c[1])
	time.Sleep(verifyEvery * 3 / 2)
	p.settle("later-")
	if p.take(0, "k") {
		t.Error("a key is taken for new though it is full")
	}
	p.take(1, "j")
	p.take(1, "j")
	flush(t, p.c[1])
	time.Sleep(verifyEvery * 3 / 2)
	p.store.forget()
	for i := range 4 {
		p.take(0, fmt.Sprint("then-", i))
		time.Sleep(verifyEvery / 2)
	}
	reads, begun, hashes := p.store.counted()
	if begun > 0 || hashes == 0 || hashes > 20 {
		t.Errorf("%d hashes were read, %d times from the beginning", hashes, begun)
	}
	if n := len(reads); n > 3 {
		t.Errorf("%d keys were read", n)
	}
	if p.take(0, "j") {
		t.Error("another key is taken for new though it is full")
	}
}

// TestAbsenceHasAnAge: a partition without a key in memory asks the store for nothing. Later it no
// longer relies on its earlier knowledge.
func TestAbsenceHasAnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newDuo(t, 0, 0)
		p.settle("first-")
		for i := range 3 {
			key := fmt.Append(nil, "first-", i)
			if err := p.c[0].DropKey(t.Context(), nil, key, true); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Minute) // they leave memory
		if n := p.c[0].Stats().Keys; n > 0 {
			t.Fatalf("%d keys are in memory", n)
		}
		p.take(1, "k")
		p.take(1, "k")
		flush(t, p.c[1])
		time.Sleep(time.Minute)
		if p.take(0, "k") {
			t.Error("a key is taken for new though it is full")
		}
	})
}

// TestListAfterAHandover hands a partition over and back, with keys that the new owner has only
// counted, flushed or evicted: the next owner takes none of them for new.
func TestListAfterAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newDuo(t, 128<<10, 0)
		p.settle("first-")
		for turn := range 4 {
			from, to := turn%2, (turn+1)%2
			for i := range 300 {
				key := fmt.Sprint("k-", turn, "-", i)
				p.take(from, key)
				p.take(from, key)
				if i%40 == 0 {
					time.Sleep(5 * time.Second)
				}
			}
			hand(t, p.c[from], p.c[to], 0, 4096)
			for i := range 300 {
				for of := range turn + 1 {
					if p.take(to, fmt.Sprint("k-", of, "-", i)) {
						t.Fatalf("turn %d: a key of turn %d is taken for new", turn, of)
					}
				}
				if i%40 == 0 {
					time.Sleep(5 * time.Second)
				}
			}
		}
		if a, b := p.c[0].Stats().UnreadTotal, p.c[1].Stats().UnreadTotal; a == 0 || b == 0 {
			t.Errorf("%d and %d keys were not read", a, b)
		}
	})
}
