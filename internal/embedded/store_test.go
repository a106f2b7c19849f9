package embedded_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// TestMemoryIsBoundedWhateverComes floods a small store with names, most of them new: with counts,
// resets of present and missing keys, restorations, and folds, one kind at a time or mixed. The
// accounted memory is right and stays within the bound: a full store refuses rounds.
func TestMemoryIsBoundedWhateverComes(t *testing.T) {
	const memory = 100_000
	first := seed.First()
	t.Logf("seed %d", first)
	rnd := rand.New(rand.NewPCG(first, 0))
	s := newTimed(embedded.Options{MaxMemory: memory})
	seqs, epochs := map[int]uint64{}, map[int]uint64{}
	kind, refused := 0, 0
	for i := range 40_000 {
		if i%2000 == 0 { // in a full store, what does not expire would leave no room
			kind = rnd.IntN(5)
			s.Flush()
			clear(seqs)
			clear(epochs)
		}
		p := rnd.IntN(3)
		seqs[p]++
		key := fmt.Sprint("k", i)
		if rnd.IntN(4) == 0 {
			key = fmt.Sprint("k", rnd.IntN(i+1))
		}
		k := syncer.KeyRound{Key: []byte(key)}
		r := &syncer.Round{Partition: p, Now: rnd.Int64N(20 * 3_600_000), Writer: "w",
			Seq: seqs[p], Epoch: epochs[p]}
		does := kind
		if kind > 2 {
			does = rnd.IntN(3)
		}
		switch does {
		case 0:
			k.TTL, k.Renew = rnd.Int64N(100_000), rnd.IntN(2) == 0
		case 1:
			k.Reset = true
		case 2:
			r.Republish, r.After = true, uint64(rnd.IntN(500)/499)*epochs[p]
		}
		if does != 1 || rnd.IntN(8) == 0 {
			for j := range 1 + rnd.Int64N(4) {
				k.Adds = append(k.Adds, bucket(j, 1))
			}
		}
		r.Keys = []syncer.KeyRound{k}
		s.Exchange(t.Context(), []*syncer.Round{r})
		switch {
		case errors.Is(r.Err, syncer.ErrRefused):
			seqs[p]--
			refused++
		case r.Err != nil || r.Lost:
			t.Fatalf("round %d: %v, lost %v", i, r.Err, r.Lost)
		default:
			epochs[p] = r.Epoch
		}
		s.now = s.now.Add(time.Duration(rnd.IntN(50)) * time.Millisecond)
		n, takes, believed := s.Held()
		if takes != believed || takes > memory+1000 || int64(n)*100 > memory+1000 {
			t.Fatalf("round %d: %d keys and records take %d bytes, believed %d", i, n, takes,
				believed)
		}
	}
	if refused < 1000 || refused > 39_000 {
		t.Errorf("%d of 40000 rounds were refused", refused)
	}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) syncer.Store {
		return conforming{embedded.New(embedded.Options{})}
	})
}

// conforming gives the conformance suite access to more of a store.
type conforming struct{ *embedded.Store }

func (s conforming) TTL(_ testing.TB, partition int, ns, key []byte) time.Duration {
	e := s.Expires(partition, ns, key)
	if e == 0 || e == math.MaxInt64 {
		return 0
	}
	return time.Until(time.UnixMilli(e))
}

func (s conforming) Lose(testing.TB) { s.Flush() }

func (s conforming) Image(testing.TB) (rewind func()) {
	image := s.Store.Image()
	return func() { s.Rewind(image) }
}

// bucket returns a one-hour bucket.
func bucket(index, n int64) syncer.Bucket {
	const hour = 3_600_000
	return syncer.Bucket{Stretch: leaparray.Stretch{Start: index * hour, Width: hour}, N: n}
}

// timed is a store with a clock set by the test.
type timed struct {
	*embedded.Store
	now time.Time
}

func newTimed(opt embedded.Options) *timed {
	s := &timed{now: time.UnixMilli(1_763_000_000_000)}
	opt.Now = func() time.Time { return s.now }
	s.Store = embedded.New(opt)
	return s
}

func add(t *testing.T, s syncer.Store, seq uint64, name string, n, ttl int64) *syncer.Round {
	t.Helper()
	r := &syncer.Round{Writer: "w", Seq: seq, Acked: seq - 1, Keys: []syncer.KeyRound{
		{Key: []byte(name), TTL: ttl, Renew: true, Adds: []syncer.Bucket{bucket(1, n)}}}}
	s.Exchange(t.Context(), []*syncer.Round{r})
	if r.Lost {
		t.Fatal("lost")
	}
	return r
}

func get(s *timed, name string) int64 {
	for _, b := range s.Get(0, nil, []byte(name)) {
		return b.N
	}
	return 0
}

func TestKeysExpire(t *testing.T) {
	s := newTimed(embedded.Options{})
	add(t, s, 1, "a", 1, 1000)
	add(t, s, 2, "forever", 1, 0)
	s.now = s.now.Add(900 * time.Millisecond)
	add(t, s, 3, "a", 1, 0) // leaves the time to live as it is
	s.now = s.now.Add(100 * time.Millisecond)
	if got := get(s, "a"); got != 2 {
		t.Errorf("at its last moment it holds %d, want 2", got)
	}
	s.now = s.now.Add(time.Millisecond)
	if got := get(s, "a"); got != 0 {
		t.Errorf("expired, it holds %d", got)
	}
	if r := add(t, s, 4, "a", 5, 1000); r.Keys[0].Adds[0].Stored != 5 {
		t.Errorf("begins again with %d, want 5", r.Keys[0].Adds[0].Stored)
	}
	s.now = s.now.Add(10 * 365 * 24 * time.Hour)
	if got := get(s, "forever"); got != 1 {
		t.Errorf("without a time to live it holds %d, want 1", got)
	}
}

// TestOverflowIsNoCount adds more to a bucket than a number can hold. The key then has a bucket
// without a count, for good.
func TestOverflowIsNoCount(t *testing.T) {
	s := embedded.New(embedded.Options{})
	add(t, s, 1, "a", math.MaxInt64, 0)
	add(t, s, 2, "a", 1, 0)
	if got := s.Get(0, nil, []byte("a")); len(got) != 1 || got[0].N != syncer.NoCount {
		t.Errorf("holds %v", got)
	}
}

// TestRestoredIsRememberedWhileItCounts restores a key again long after the first time, as a
// counter without an answer does, and again after a reset. The record lasts as long as the key.
func TestRestoredIsRememberedWhileItCounts(t *testing.T) {
	const ttl = 60 * 24 * time.Hour
	s := newTimed(embedded.Options{})
	first := add(t, s, 1, "a", 1, 0)
	for i, want := range []int64{8, 8, 0} {
		k := syncer.KeyRound{Key: []byte("a"), TTL: ttl.Milliseconds(),
			Adds: []syncer.Bucket{bucket(1, 7)}}
		r := &syncer.Round{Writer: fmt.Sprint("restorer-", i), Seq: 1, Epoch: first.Epoch,
			Republish: true, Keys: []syncer.KeyRound{k}}
		s.Exchange(t.Context(), []*syncer.Round{r})
		if got := get(s, "a"); got != want {
			t.Errorf("restored %d times it holds %d, want %d", i+1, got, want)
		}
		if i == 1 {
			reset := &syncer.Round{Writer: "x", Seq: 1,
				Keys: []syncer.KeyRound{{Key: []byte("a"), Reset: true, TTL: ttl.Milliseconds()}}}
			s.Exchange(t.Context(), []*syncer.Round{reset})
		}
		s.now = s.now.Add(30 * 24 * time.Hour)
		add(t, s, uint64(2+i), "another", 1, 0) // this sweeps old records
	}
}
