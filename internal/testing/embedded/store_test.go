package embedded_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

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
