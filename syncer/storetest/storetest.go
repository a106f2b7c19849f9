package storetest

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/syncer"
)

// TTLer is a store that can tell how long a key has left to live; 0 means that it doesn't expire.
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
	// Image remembers everything that the store holds now; rewind restores that.
	Image(t testing.TB) (rewind func())
}

func init() {
	if flag.Lookup("seed") == nil {
		flag.Uint64("seed", 0, "seed of random tests; 0 draws one")
	}
}

// Seed returns the seed that was asked for with -seed, or a random one, and logs it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, _ := flag.Lookup("seed").Value.(flag.Getter).Get().(uint64)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", seed)
	return seed
}

// Run tests everything that syncer.Store promises. open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) syncer.Store) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s syncer.Store)
	}{
		{"OncePerSequence", testOncePerSequence},
		{"LowerSequenceIgnored", testLowerSequence},
		{"SequencesPerWriterAndPartition", testSequencesAreApart},
		{"Lost", testLost},
		{"Epoch", testEpoch},
		{"Quiet", testQuiet},
		{"StoredIncludesOthers", testStoredIncludesOthers},
		{"Load", testLoad},
		{"ReadChangesNothing", testReadChangesNothing},
		{"Reset", testReset},
		{"Expired", testExpired},
		{"ManyExpired", testManyExpired},
		{"ManyKeys", testManyKeys},
		{"TTL", testTTL},
		{"Alike", testAlike},
		{"Version", testVersion},
		{"ReadOnly", testReadOnly},
		{"Republish", testRepublish},
		{"RepublishKeepsZero", testRepublishKeepsZero},
		{"RepublishAddsUp", testRepublishAddsUp},
		{"RepublishAfterARewind", testRepublishAfterARewind},
		{"RepublishAfterAReset", testRepublishAfterAReset},
		{"RepublishedPartsHaveSequences", testRepublishedPartsHaveSequences},
		{"RepublishKeepsTTL", testRepublishWithoutTTL},
		{"Rewind", testRewind},
		{"RewindBehindAnother", testRewindBehindAnother},
		{"NewsIsNoLoss", testNewsIsNoLoss},
		{"WriterUsedTwice", testWriterUsedTwice},
		{"FallenBucketsLeave", testFallenBucketsLeave},
		{"RoundsTogether", testRoundsTogether},
		{"NoRounds", testNoRounds},
		{"BadKey", testBadKey},
		{"NegativeDeltas", testNegative},
		{"LargeCounts", testLarge},
		{"Names", testNames},
		{"ListKeys", testListKeys},
		{"ListTellsOfALoss", testListTellsOfALoss},
		{"ListLostKeys", testListLostKeys},
		{"Model", testModel},
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

// base is the index of the tests' buckets: a second in the year 2025, so that indexes have as many
// digits as in production.
const base = 1_763_000_000

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
	r := &syncer.Round{Partition: 17, Writer: writer, Seq: seq, Acked: seq - 1,
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

// epoch returns the epoch of a partition.
func epoch(t testing.TB, s syncer.Store, partition int) uint64 {
	t.Helper()
	r := &syncer.Round{Partition: partition, Writer: "reader"}
	exchange(t, s, r)
	return r.Epoch
}

func key(name string, adds ...syncer.Bucket) syncer.KeyRound {
	return syncer.KeyRound{Key: []byte(name), TTL: time.Hour.Milliseconds(), Adds: adds}
}

func bucket(level uint8, idx, n int64) syncer.Bucket {
	return syncer.Bucket{Level: level, Index: base + idx, N: n}
}

// bucketID identifies a bucket.
type bucketID struct {
	level uint8
	idx   int64
}

// content is the non-zero buckets of a key: a store may or may not keep those that are zero.
type content map[bucketID]int64

func contentOf(buckets []syncer.Bucket) content {
	c := content{}
	for _, b := range buckets {
		if b.N != 0 {
			c[bucketID{b.Level, b.Index}] = b.N
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

// holds checks what the store has of a key, in the same partition as apply.
func holds(t testing.TB, s syncer.Store, name string, want ...syncer.Bucket) {
	t.Helper()
	if got := load(t, s, 17, nil, []byte(name)); !maps.Equal(got, contentOf(want)) {
		t.Errorf("%q holds %v, want %v", name, got, contentOf(want))
	}
}

func stored(t testing.TB, k *syncer.KeyRound, want ...int64) {
	t.Helper()
	for i := range k.Adds {
		if k.Adds[i].Stored != want[i] {
			t.Errorf("%q bucket %d: stored is %d, want %d", k.Key, i, k.Adds[i].Stored, want[i])
		}
	}
}
