package storetest

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TTLer is a store that can report a key's remaining time to live; 0 means that it doesn't expire.
type TTLer interface {
	TTL(t testing.TB, partition int, ns, key []byte) time.Duration
}

// Spoiler is a store that can put something else under the name of a key, so that the key can't be
// counted.
type Spoiler interface {
	Spoil(t testing.TB, partition int, ns, key []byte)
}

// Loser is a store that can be made to lose data.
type Loser interface {
	// Lose loses everything.
	Lose(t testing.TB)
	// Image saves the content of the store; rewind restores it.
	Image(t testing.TB) (rewind func())
}

func init() {
	if flag.Lookup("seed") == nil {
		flag.Uint64("seed", 0, "seed of random tests; 0 draws one")
	}
}

// Seed returns the seed given by -seed, or a random one, and logs it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, _ := flag.Lookup("seed").Value.(flag.Getter).Get().(uint64)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", seed)
	return seed
}

// Run tests all promises of syncer.Store. open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) syncer.Store) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s syncer.Store)
	}{
		{"OncePerSequence", testOncePerSequence}, {"Lost", testLost},
		{"Log", testLog},
		{"ContentKeepsTheRestOfALog", testContentKeepsTheRestOfALog}, {"Content", testContent},
		{"ManyKeys", testManyKeys}, {"TTL", testTTL},
		{"RepublishKeepsZero", testRepublishKeepsZero},
		{"RepublishedPartsHaveSequences", testRepublishedPartsHaveSequences},
		{"RepublishByMany", testRepublishByMany}, {"RewindBehindAnother", testRewindBehindAnother},
		{"WriterUsedTwice", testWriterUsedTwice}, {"RoundsTogether", testRoundsTogether},
		{"NoRounds", testNoRounds}, {"BadKey", testBadKey}, {"LargeCounts", testLarge},
		{"Values", testValues}, {"RestoredValues", testRestoredValues},
		{"ManyValues", testManyValues}, {"Names", testNames},
		{"ListKeys", testListKeys}, {"ListTellsOfALoss", testListTellsOfALoss},
		{"ListLostKeys", testListLostKeys}, {"Model", testModel},
		{"ConcurrentWriters", testConcurrentWriters},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, open(t)) })
	}
}

const (
	// patience bounds one exchange. It is long because the machine may be busy.
	patience = 3 * time.Minute
	// slack is how much of a time to live may have passed when it is read.
	slack = 10 * time.Second
)

// start is the time of the tests, in unix milliseconds, a multiple of the widths of their buckets.
const start = 1_763_000_000_000

func exchange(t testing.TB, s syncer.Store, rounds ...*syncer.Round) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.Exchange(ctx, rounds)
	for _, r := range rounds {
		if r.Err != nil {
			t.Fatalf("round %d of %s in partition %d: %v", r.Seq, r.Writer, r.Partition, r.Err)
		}
	}
}

// apply exchanges a round of one key, which must be applied.
func apply(t testing.TB, s syncer.Store, writer string, seq uint64,
	k syncer.KeyRound) *syncer.Round {
	t.Helper()
	r := &syncer.Round{Partition: 17, Now: start, Writer: writer, Seq: seq, Acked: seq - 1,
		Epoch: epoch(t, s, 17), Keys: []syncer.KeyRound{k}}
	exchange(t, s, r)
	if r.Lost {
		t.Fatalf("round %d of %s is lost", seq, writer)
	}
	if err := r.Keys[0].Err; err != nil {
		t.Fatalf("round %d of %s: %v", seq, writer, err)
	}
	return r
}

func epoch(t testing.TB, s syncer.Store, partition int) uint64 {
	t.Helper()
	r := &syncer.Round{Partition: partition, Writer: "reader"}
	exchange(t, s, r)
	return r.Epoch
}

func key(name string, adds ...syncer.Bucket) syncer.KeyRound {
	return syncer.KeyRound{Key: []byte(name), TTL: time.Hour.Milliseconds(), Adds: adds}
}

// at returns a bucket of one of the tests' widths.
func at(level int, idx int64) leaparray.Stretch {
	width := [...]int64{1000, 2000, 8000}[level]
	return leaparray.Stretch{Start: start + idx*width, Width: width}
}

func bucket(level int, idx, n int64) syncer.Bucket {
	return syncer.Bucket{Stretch: at(level, idx), N: n}
}

// moment returns n events that keep their millisecond, this long after start.
func moment(after, n int64) syncer.Bucket {
	return syncer.Bucket{Stretch: leaparray.Moment(start + after), N: n}
}

// smallLadder returns a ladder with few buckets, of the tests' widths.
func smallLadder(t testing.TB, exact int) *leaparray.Ladder {
	l, err := leaparray.NewLadder(exact, leaparray.Level{Width: time.Second, Count: 3},
		leaparray.Level{Width: 2 * time.Second, Count: 4},
		leaparray.Level{Width: 8 * time.Second, Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// content holds the non-zero cells of a key. A store may or may not keep zero cells, unless they
// are marks.
type content map[leaparray.Stretch]int64

func contentOf(buckets []syncer.Bucket) content {
	c := content{}
	for _, b := range buckets {
		if b.N != 0 {
			c[b.Stretch] = b.N
		}
	}
	return c
}

// load reads a key without changing anything.
func load(t testing.TB, s syncer.Store, partition int, ns, name []byte) content {
	t.Helper()
	r := &syncer.Round{Partition: partition, Writer: "reader",
		Keys: []syncer.KeyRound{{NS: ns, Key: name, Load: true}}}
	exchange(t, s, r)
	if r.Lost || r.Keys[0].Err != nil {
		t.Fatalf("load %q: lost %v, %v", name, r.Lost, r.Keys[0].Err)
	}
	return contentOf(r.Keys[0].Loaded)
}

// checkContent checks the store's content of a key, in the same partition as apply.
func checkContent(t testing.TB, s syncer.Store, name string, want ...syncer.Bucket) {
	t.Helper()
	if got := load(t, s, 17, nil, []byte(name)); !maps.Equal(got, contentOf(want)) {
		t.Errorf("%q holds %v, want %v", name, got, contentOf(want))
	}
}

// checkHeld checks the store's counts of the buckets of a key that a round has added to, in the
// same partition as apply.
func checkHeld(t testing.TB, s syncer.Store, k syncer.KeyRound, want ...int64) {
	t.Helper()
	have := load(t, s, 17, k.NS, k.Key)
	for i := range k.Adds {
		if n := have[k.Adds[i].Stretch]; n != want[i] {
			t.Errorf("%q bucket %d: the store has %d, want %d", k.Key, i, n, want[i])
		}
	}
}

// checkTTL checks a key's remaining time to live, if the store reveals it.
func checkTTL(t *testing.T, s syncer.Store, name string, want time.Duration) {
	t.Helper()
	ttl, ok := s.(TTLer)
	if !ok {
		return
	}
	if got := ttl.TTL(t, 17, nil, []byte(name)); got > want || got < want-6*slack {
		t.Errorf("%s lives for %v more, want %v", name, got, want)
	}
}
