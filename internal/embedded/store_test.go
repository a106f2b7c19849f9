package embedded_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/must"
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

func TestRepublishRefreshesTTL(t *testing.T) {
	s := newTimed(embedded.Options{})
	first := add(t, s, 1, "a", 1, 1000)
	r := &syncer.Round{Writer: "restorer", Seq: 1, Epoch: first.Epoch, Republish: true,
		Keys: []syncer.KeyRound{{Key: []byte("a"), TTL: 5000, Renew: true,
			Adds: []syncer.Bucket{bucket(1, 1)}}}}
	s.Exchange(t.Context(), []*syncer.Round{r})
	s.now = s.now.Add(4 * time.Second)
	if got := get(s, "a"); got != 2 {
		t.Errorf("it holds %d, want 2", got)
	}
}

func TestOverflowRefusesTheKey(t *testing.T) {
	s := embedded.New(embedded.Options{})
	add(t, s, 1, "a", math.MaxInt64, 0)
	r := &syncer.Round{Writer: "w", Seq: 2, Acked: 1, Keys: []syncer.KeyRound{
		{Key: []byte("a"), Adds: []syncer.Bucket{bucket(2, 1), bucket(1, 1)}},
		{Key: []byte("b"), Adds: []syncer.Bucket{bucket(1, math.MinInt64)}},
	}}
	s.Exchange(t.Context(), []*syncer.Round{r})
	if r.Err != nil || !errors.Is(r.Keys[0].Err, syncer.ErrNotApplied) || r.Keys[1].Err != nil {
		t.Errorf("%v, %v, %v", r.Err, r.Keys[0].Err, r.Keys[1].Err)
	}
	if got := s.Get(0, nil, []byte("a")); len(got) != 1 || got[0].N != math.MaxInt64 {
		t.Errorf("holds %v", got)
	}
	r.Seq, r.Acked, r.Keys = 3, 2, r.Keys[1:]
	r.Keys[0].Adds[0].N = -1
	s.Exchange(t.Context(), []*syncer.Round{r})
	if r.Keys[0].Err == nil {
		t.Error("the smallest number minus one is accepted")
	}
}

// TestFullStoreForgetsWhatHasCountedLeast floods a store with keys that count twice, in one
// partition or in all. Keys of every partition that have counted more stay, and so do their bans,
// although a ban is a count of one.
func TestFullStoreForgetsWhatHasCountedLeast(t *testing.T) {
	for name, floodedOf := range map[string]func(i int) int{
		"all partitions": func(i int) int { return i % 16 },
		"one partition":  func(int) int { return 3 },
		"half of them":   func(i int) int { return i % 8 },
	} {
		t.Run(name, func(t *testing.T) { floodStore(t, floodedOf) })
	}
}

// floodStore floods a store of 16 partitions. floodedOf returns the partition of a flood's key.
func floodStore(t *testing.T, floodedOf func(i int) int) {
	var log strings.Builder
	const memory = 400_000
	s := newTimed(embedded.Options{MaxMemory: memory,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	seqs := map[int]uint64{}
	count := func(partition int, ns, key string, n int64) {
		seqs[partition]++
		r := &syncer.Round{Partition: partition, Writer: "w", Seq: seqs[partition],
			Acked: seqs[partition] - 1, Keys: []syncer.KeyRound{{NS: []byte(ns), Key: []byte(key),
				TTL: 60_000, Adds: []syncer.Bucket{bucket(1, n)}}}}
		if s.Exchange(t.Context(), []*syncer.Round{r}); r.Lost || r.Err != nil {
			t.Fatalf("%s: %v, lost %v", key, r.Err, r.Lost)
		}
	}
	for i := range 160 {
		key := fmt.Sprint("limited-", i)
		ns, ban := twotier.BanKey(nil, "rule", []byte(key))
		count(i%16, string(ns), string(ban), 1)
		count(i%16, "", key, 5)
	}
	for i := range 20_000 {
		count(floodedOf(i), "", fmt.Sprint("flood-", i), 2)
	}
	for i := range 160 {
		key := fmt.Sprint("limited-", i)
		ns, ban := twotier.BanKey(nil, "rule", []byte(key))
		if n, bans := s.Sum(i%16, nil, []byte(key)), s.Sum(i%16, ns, ban); n != 5 || bans != 1 {
			t.Errorf("%s in partition %d holds %d and %d bans, want 5 and 1", key, i%16, n, bans)
		}
	}
	if got := s.Sum(floodedOf(19_999), nil, []byte("flood-19999")); got != 2 {
		t.Errorf("the last key of the flood holds %d", got)
	}
	if kept := 20_320 - s.Evicted(); kept*100 > memory || kept*300 < memory {
		t.Errorf("%d keys are kept in %d bytes", kept, memory)
	}
	if n := strings.Count(log.String(), "the embedded store is full"); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
}

// TestCompanionsOutliveTheirKeys floods a store with keys that have counted as much as a key whose
// counts have expired, but not its ban.
func TestCompanionsOutliveTheirKeys(t *testing.T) {
	s := newTimed(embedded.Options{MaxMemory: 40_000})
	ns, ban := twotier.BanKey(nil, "rule", []byte("k"))
	add(t, s, 1, "k", 5, 1000)
	r := &syncer.Round{Writer: "w", Seq: 2, Acked: 1, Keys: []syncer.KeyRound{
		{NS: ns, Key: ban, TTL: 1_000_000, Adds: []syncer.Bucket{bucket(1, 1)}}}}
	s.Exchange(t.Context(), []*syncer.Round{r})
	s.now = s.now.Add(2 * time.Second)
	for i := range 2000 {
		add(t, s, uint64(3+i), fmt.Sprint("flood-", i), 4+int64(i%2), 2_000_000)
	}
	if got := s.Sum(0, ns, ban); got != 1 {
		t.Errorf("the ban holds %d, want 1", got)
	}
}

// TestFullStoreForgetsTheOldestOfEquals counts keys once each. The newest are kept.
func TestFullStoreForgetsTheOldestOfEquals(t *testing.T) {
	s := newTimed(embedded.Options{MaxMemory: 40_000})
	for i := range 2000 {
		s.now = s.now.Add(time.Millisecond)
		add(t, s, uint64(1+i), fmt.Sprint("k", i), 1, 60_000)
	}
	for i := range 20 {
		if old, young := get(s, fmt.Sprint("k", i)), get(s, fmt.Sprint("k", 1999-i)); old != 0 ||
			young != 1 {
			t.Errorf("the key of place %d holds %d, want 0, the one from the end %d, want 1", i,
				old, young)
		}
	}
}

// TestLargestSumsStay floods a store beside a key whose buckets add up to more than 64 bits hold.
func TestLargestSumsStay(t *testing.T) {
	s := newTimed(embedded.Options{MaxMemory: 40_000})
	r := &syncer.Round{Writer: "w", Seq: 1, Keys: []syncer.KeyRound{{Key: []byte("k"),
		Adds: []syncer.Bucket{bucket(1, math.MaxInt64), bucket(2, math.MaxInt64)}}}}
	s.Exchange(t.Context(), []*syncer.Round{r})
	for i := range 2000 {
		add(t, s, uint64(2+i), fmt.Sprint("flood-", i), 1, 2_000_000)
	}
	if got := s.Get(0, nil, []byte("k")); len(got) != 2 {
		t.Errorf("the key holds %v", got)
	}
}

// TestFullStoreForgetsWhatHasExpiredFirst drops expired keys although they have counted more than
// the keys that stay.
func TestFullStoreForgetsWhatHasExpiredFirst(t *testing.T) {
	s := newTimed(embedded.Options{MaxMemory: 40 * 150})
	for i := range 20 {
		add(t, s, uint64(1+i), fmt.Sprint("old-", i), 100, 1000)
	}
	s.now = s.now.Add(2 * time.Second)
	for i := range 30 {
		add(t, s, uint64(21+i), fmt.Sprint("new-", i), 1, 60_000)
	}
	for i := range 30 {
		if got := get(s, fmt.Sprint("new-", i)); got != 1 {
			t.Errorf("new-%d holds %d, want 1", i, got)
		}
	}
}

func TestFlushIsALoss(t *testing.T) {
	s := embedded.New(embedded.Options{})
	add(t, s, 1, "a", 1, 0)
	s.Flush()
	r := &syncer.Round{Writer: "w", Seq: 2, Acked: 1}
	s.Exchange(t.Context(), []*syncer.Round{r})
	if !r.Lost || len(s.Get(0, nil, []byte("a"))) != 0 {
		t.Errorf("lost %v", r.Lost)
	}
}

// TestRestoredIsRememberedWhileItCounts restores a key again long after the first time, as a
// counter without an answer does, and again after a reset. The record lasts as long as the ladder.
func TestRestoredIsRememberedWhileItCounts(t *testing.T) {
	l, err := leaparray.NewLadder(0, leaparray.Level{Width: time.Hour, Count: 24 * 30})
	must.Succeed(t, err)
	s := newTimed(embedded.Options{})
	first := add(t, s, 1, "a", 1, 0)
	for i, want := range []int64{8, 8, 0} {
		k := syncer.KeyRound{Key: []byte("a"), Ladder: l, Adds: []syncer.Bucket{bucket(1, 7)}}
		r := &syncer.Round{Writer: fmt.Sprint("restorer-", i), Seq: 1, Epoch: first.Epoch,
			Republish: true, Keys: []syncer.KeyRound{k}}
		s.Exchange(t.Context(), []*syncer.Round{r})
		if got := get(s, "a"); got != want {
			t.Errorf("restored %d times it holds %d, want %d", i+1, got, want)
		}
		if i == 1 {
			reset := &syncer.Round{Writer: "x", Seq: 1,
				Keys: []syncer.KeyRound{{Key: []byte("a"), Reset: true, Ladder: l}}}
			s.Exchange(t.Context(), []*syncer.Round{reset})
		}
		s.now = s.now.Add(30 * 24 * time.Hour)
		add(t, s, uint64(2+i), "another", 1, 0) // this sweeps old records
	}
}
