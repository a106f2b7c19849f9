package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// restoreTwice has a writer restore its counts of a key in a partition, twice, as if the first
// reply had been lost. Both replies report what the store then has: at least those counts.
func restoreTwice(t *testing.T, s syncer.Store, partition int, after uint64, k syncer.KeyRound,
	now int64) *syncer.Round {
	t.Helper()
	r := restorationRoundIn(t, s, partition, after, k)
	r.Now = now
	for again := range 2 {
		exchange(t, s, r)
		if r.Lost || r.Keys[0].Err != nil {
			t.Fatalf("%s: lost %v, %v", k.Key, r.Lost, r.Keys[0].Err)
		}
		got := contentOf(r.Keys[0].Loaded)
		if has := load(t, s, partition, k.NS, k.Key); !maps.Equal(got, has) ||
			sumOf(got) < sumOf(contentOf(k.Adds)) {
			t.Errorf("%s: %v is reported of %v, known are %v", k.Key, got, has, k.Adds)
		}
		if again == 0 && after > 0 {
			break // it was for the previous epoch
		}
	}
	return r
}

// testRepublishAtOtherPrecision restores three writers' counts of the same events, in any order: as
// milliseconds, folded in part, and with one event more, folded. A store that compared them cell by
// cell would count them several times.
func testRepublishAtOtherPrecision(t *testing.T, s syncer.Store) {
	apply(t, s, "v", 1, key("other", bucket(0, 0, 1)))
	knowledge := [][]syncer.Bucket{
		{moment(100, 1), moment(300, 1), moment(1100, 1), moment(1900, 1), moment(2500, 1)},
		{bucket(0, 0, 2), bucket(0, 1, 2), moment(2500, 1)},
		{bucket(1, 0, 4), bucket(1, 1, 1)},
		{bucket(2, 0, 6)},
	}
	for i, order := range [][]int{{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}, {2, 1}, {0, 3}, {3, 0},
		{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}, {0, 0}, {3, 3}} {
		name, want := fmt.Sprint("a", i), int64(0)
		for _, who := range order {
			restoreTwice(t, s, 17, 0, key(name, knowledge[who]...), start)
			sum := int64(0)
			for _, b := range knowledge[who] {
				sum += b.N
			}
			want = max(want, sum)
			if got := sumOf(load(t, s, 17, nil, []byte(name))); got != want {
				t.Errorf("%v: %d events once %d has restored, want %d", order, got, who, want)
			}
		}
	}
	checkContent(t, s, "a0", knowledge[0]...) // with the precision of the first
}

func sumOf(c content) (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// testRepublishByMany has a store lose all of a key, or its last counts. Several writers have
// copies of the key from different times, which they fold at any time, as the store does. They
// restore one after the other while more is counted. In the end the store has the counts of the
// most complete copy, and the later ones.
func testRepublishByMany(t *testing.T, s syncer.Store) {
	seed := Seed(t)
	for i := range 30 {
		rnd := rand.New(rand.NewPCG(seed, uint64(100+i)))
		c := &crowd{t: t, s: s, Rand: rnd, partition: 20 + i, now: start,
			l: smallLadder(t, []int{0, 4, 64}[i%3]), have: content{}}
		c.count()
		if after := c.lose(); after > 0 {
			c.restore(after)
		}
		for len(c.nodes) > 0 {
			if c.IntN(2) == 0 {
				c.countInStore()
			}
			c.restore(0)
		}
		c.countInStore()
		checkSums(t, load(t, s, c.partition, nil, []byte("a")), c.events, c.l, c.now)
		if t.Failed() {
			t.Fatalf("in partition %d", c.partition)
		}
	}
}

// crowd is several writers with copies of a key.
type crowd struct {
	t *testing.T
	s syncer.Store
	*rand.Rand
	partition int
	now       int64
	l         *leaparray.Ladder
	have      content // of the store before the loss
	left      content // remains after the loss
	events    []event
	nodes     []content
	seq       uint64
}

// count counts in the store before the loss, and takes copies now and then.
func (c *crowd) count() {
	known := 0
	for n := range 60 {
		c.now += c.Int64N(300)
		e := event{c.now - c.Int64N(1+c.Int64N(10_000)), 1 + c.Int64N(3)}
		b := cellFor(c.Rand, c.l, e.ts, c.now, e.n)
		c.have[b.Stretch] += b.N
		c.events = append(c.events, e)
		for _, copied := range append(c.nodes, c.have) {
			if c.IntN(8) == 0 {
				copied.fold(c.l, c.now, 0)
			}
		}
		if c.IntN(12) == 0 || n == 59 {
			c.nodes, known = append(c.nodes, maps.Clone(c.have)), len(c.events)
		} else if c.IntN(12) == 0 && len(c.nodes) > 0 {
			c.left = maps.Clone(c.have)
		}
	}
	c.events = c.events[:known]
	c.Shuffle(len(c.nodes), func(i, j int) { c.nodes[i], c.nodes[j] = c.nodes[j], c.nodes[i] })
}

// lose puts the remains after the loss into the store. It returns their epoch, or 0 if there are
// none.
func (c *crowd) lose() (after uint64) {
	if c.IntN(3) == 0 || len(c.left) == 0 {
		return 0
	}
	r := c.round(c.left)
	exchange(c.t, c.s, r)
	return r.Epoch
}

// round returns a round that counts.
func (c *crowd) round(cells content) *syncer.Round {
	c.seq++
	k := key("a")
	for at, n := range cells {
		k.Adds = append(k.Adds, syncer.Bucket{Stretch: at, N: n})
	}
	return &syncer.Round{Partition: c.partition, Now: c.now, Writer: "w", Seq: c.seq,
		Keys: []syncer.KeyRound{k}}
}

func (c *crowd) countInStore() {
	c.now += c.Int64N(1000)
	e := event{c.now - c.Int64N(5000), 1 + c.Int64N(3)}
	c.events = append(c.events, e)
	b := cellFor(c.Rand, c.l, e.ts, c.now, e.n)
	exchange(c.t, c.s, c.round(content{b.Stretch: b.N}))
}

// restore has the next writer restore its copy.
func (c *crowd) restore(after uint64) {
	known := c.nodes[0]
	c.nodes = c.nodes[1:]
	if c.IntN(2) == 0 {
		known.fold(c.l, c.now, 0)
	}
	k := c.round(known).Keys[0]
	restoreTwice(c.t, c.s, c.partition, after, k, c.now)
}
