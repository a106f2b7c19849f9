package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// dice makes random rounds.
type dice struct {
	*rand.Rand
	model  model
	ladder *leaparray.Ladder
	// acked is keyed by partition and writer; nonce is the epoch in which the sequence was
	// acknowledged.
	acked map[string]sequence
	told  map[string]syncer.Told // by partition and writer
	past  []*syncer.Round        // copies of rounds as they were sent
	now   int64
	// known holds copies of keys from various times, by partition and name.
	known map[string][]content
}

const (
	modelPartitions = 3
	modelKeys       = 6
	modelValueKeys  = 2 // further keys, which have values
)

func sequenceID(r *syncer.Round) string { return fmt.Sprint(r.Partition, " ", r.Writer) }

// round returns a writer's next round, most of the time. Otherwise it returns one that has been
// sent before, or one that should never be sent.
func (d *dice) round() *syncer.Round {
	if len(d.past) > 0 && d.IntN(4) == 0 {
		return copyOf(d.past[d.IntN(len(d.past))])
	}
	r := &syncer.Round{Partition: d.IntN(modelPartitions), Writer: fmt.Sprint("w", d.IntN(3)),
		Nonce: d.Uint64(), Quiet: d.IntN(8) == 0}
	d.now += d.Int64N(700)
	r.Now = d.now
	if d.IntN(16) == 0 { // by another clock
		r.Now += d.Int64N(40_000) - 20_000
	}
	id := sequenceID(r)
	told, acked := d.told[id], d.acked[id]
	r.Expect(told)
	if acked.nonce == told.Epoch {
		r.Acked = acked.n
	}
	r.Seq = acked.n + 1
	switch d.IntN(12) {
	case 0:
		r.Seq = 0
		if r.ReadOnly = told.Epoch != 0 && d.IntN(2) == 0; r.ReadOnly {
			r.Acked = 0
		}
	case 1: // acknowledged by data that was lost, or never existed
		r.Acked += 1000
		r.Seq = r.Acked + 1
	case 2:
		r.Epoch += uint64(d.IntN(3)) - 1
	case 3: // from a copy of a writer
		r.Seq = max(1, acked.n)
		r.Acked = min(r.Acked, r.Seq-1)
	case 4, 5, 6:
		d.republish(r, told)
	}
	for i := range modelKeys + modelValueKeys {
		if d.IntN(3) == 0 || r.Republish && d.IntN(2) == 0 {
			r.Keys = append(r.Keys, d.copyPrevious(r, d.key(r, i)))
		}
	}
	return r
}

// republish turns a round into part of a restoration: by a writer that has noticed the loss, by one
// that only notices it with this round, or by one that is wrong.
func (d *dice) republish(r *syncer.Round, told syncer.Told) {
	now := d.model.partition(r.Partition).Told
	r.Republish, r.Quiet, r.After = true, false, told.Epoch
	if d.IntN(4) > 0 {
		r.Expect(now)
	}
	if d.IntN(2) == 0 && told.Epoch > 0 {
		r.After--
	}
}

func (d *dice) key(r *syncer.Round, i int) syncer.KeyRound {
	k := syncer.KeyRound{Key: fmt.Append(nil, "key-", i/2), Load: d.IntN(3) == 0 &&
		!r.Republish, New: d.IntN(2) == 0}
	if i%2 == 1 {
		k.NS = []byte("ns")
	}
	if i >= modelKeys {
		k.Key = valuesKey(i)
	}
	if r.ReadOnly {
		return syncer.KeyRound{NS: k.NS, Key: k.Key, Load: true}
	}
	write := r.Seq > 0
	k.TTL, k.Renew = []int64{1, 5}[d.IntN(2)]*time.Hour.Milliseconds(), d.IntN(4) == 0
	k.Reset = write && d.IntN(10) == 0 && !r.Republish
	if hasValues(&k) {
		d.values(r, &k)
		return k
	}
	if r.Republish && d.IntN(4) > 0 {
		k.Adds = d.knownCounts(r, &k)
		return k
	}
	n := d.IntN(4)
	if d.IntN(30) == 0 {
		n = 400 // more than the ladder allows
	}
	have := d.model.stretches(r, &k)
	for range n {
		b := d.cell()
		if len(have) > 0 && d.IntN(2) == 0 {
			b.Stretch = have[d.IntN(len(have))]
		}
		if !slices.ContainsFunc(k.Adds, func(o syncer.Bucket) bool {
			return o.Stretch == b.Stretch
		}) {
			if r.Republish {
				b.N = max(0, b.N)
			}
			k.Adds = append(k.Adds, b)
		}
	}
	if r.Seq > 0 && !r.Republish && !r.Quiet && !k.Reset && d.IntN(2) == 0 {
		d.addContent(r, &k)
	}
	return k
}

// addContent adds what a key has after a round, as a writer knows it that has loaded the key when
// it was told the state of the partition. One that does not know the latest state has its content
// refused.
func (d *dice) addContent(r *syncer.Round, k *syncer.KeyRound) {
	p, c := d.model.partition(r.Partition), content{}
	maps.Copy(c, p.keys[nameOf(k)])
	latest := r.Epoch == p.Epoch && r.Version == p.Version && r.Quieted == p.Quieted &&
		r.LastChange == p.LastChange
	rewrite := !latest || p.logged[nameOf(k)] || d.IntN(4) == 0
	for _, b := range k.Adds {
		rewrite = rewrite || b.N <= 0
		c.count(b)
	}
	if rewrite && d.IntN(2) == 0 {
		c.fold(d.ladder, d.now, 0)
	}
	var list []syncer.Bucket
	for s, n := range c {
		if n < 0 {
			return
		}
		list = append(list, syncer.Bucket{Stretch: s, N: n})
	}
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, syncer.Bucket.Compare)
	k.New, k.Content = false, list
	if k.Rewrite = rewrite; rewrite {
		k.ContentLog = syncer.WholeLog
	}
}

// cell returns a cell of one of the ladder's widths, or of another one below the largest, with a
// count, or a mark ahead of the present.
func (d *dice) cell() syncer.Bucket {
	ts := d.now + 2000 - d.Int64N(1+d.Int64N(30_000))
	width := []int64{1, 1, 1, 500, 1000, 1000, 2000, 8000}[d.IntN(8)]
	b := syncer.Bucket{Stretch: leaparray.Stretch{Start: ts - ts%width, Width: width},
		N: 1 + d.Int64N(99)}
	switch d.IntN(10) {
	case 0:
		b.N = -d.Int64N(20)
	case 1:
		b.Stretch, b.N = d.ladder.BucketAfter(d.now), 0
	}
	return b
}

// knownCounts returns some writer's counts of a key, folded by now.
func (d *dice) knownCounts(r *syncer.Round, k *syncer.KeyRound) (list []syncer.Bucket) {
	all := d.known[fmt.Sprint(r.Partition, nameOf(k))]
	if len(all) == 0 {
		return nil
	}
	c := maps.Clone(all[d.IntN(len(all))])
	c.fold(d.ladder, d.now, 0)
	for s, n := range c {
		if n >= 0 {
			list = append(list, syncer.Bucket{Stretch: s, N: n})
		}
	}
	return list
}

// keepCopy has a writer keep a copy of a key, at times.
func (d *dice) keepCopy(r *syncer.Round) {
	for i := range r.Keys {
		k := &r.Keys[i]
		if c := d.model.partition(r.Partition).keys[nameOf(k)]; len(c) > 0 && d.IntN(4) == 0 {
			name := fmt.Sprint(r.Partition, nameOf(k))
			all := append(d.known[name], maps.Clone(c))
			d.known[name] = all[max(0, len(all)-8):]
		}
	}
}

// copyPrevious replaces a key's part, at times, with a copy of the part before it.
func (d *dice) copyPrevious(r *syncer.Round, k syncer.KeyRound) syncer.KeyRound {
	if len(r.Keys) == 0 || d.IntN(2) == 0 {
		return k
	}
	same := r.Keys[len(r.Keys)-1]
	if hasValues(&same) != hasValues(&k) {
		return k
	}
	same.NS, same.Key = k.NS, k.Key
	same.Adds = slices.Clone(same.Adds)
	same.Content, same.Rewrite, same.ContentLog = nil, false, 0
	return same
}

func copyOf(r *syncer.Round) *syncer.Round {
	c := *r
	c.Keys = slices.Clone(r.Keys)
	for i := range c.Keys {
		c.Keys[i].Adds = slices.Clone(c.Keys[i].Adds)
		c.Keys[i].Loaded = nil
	}
	return &c
}

func (d *dice) recordSettled(r, sent *syncer.Round) {
	d.past = append(d.past, sent)
	id := sequenceID(r)
	if r.Lost && d.IntN(2) == 0 { // and its writer notices
		d.told[id], d.acked[id] = r.Told(), sequence{d.acked[id].n, unnamedEpoch}
	}
	if r.Used { // its writer goes on
		d.acked[id] = sequence{r.Seq, d.acked[id].nonce}
	}
	if r.Lost || r.Used {
		return
	}
	if r.Seq > 0 {
		d.acked[id] = sequence{max(d.acked[id].n, r.Seq), r.Epoch}
	}
	d.told[id] = r.Told()
}

func testModel(t *testing.T, s syncer.Store) {
	seed := Seed(t)
	d := &dice{rand.New(rand.NewPCG(seed, 1)), model{}, smallLadder(t, 4), map[string]sequence{},
		map[string]syncer.Told{}, nil, start, map[string][]content{}}
	loser, _ := s.(Loser)
	rewind, then := func() {}, model{}
	for range 800 {
		if n := d.IntN(100); loser != nil && n < 3 {
			switch n {
			case 0:
				loser.Lose(t)
				d.model = model{}
			case 1:
				rewind, then = loser.Image(t), d.model.copy()
			case 2:
				rewind()
				d.model = then.copy()
			}
			if n == 2 && len(then) == 0 {
				loser.Lose(t)
			}
		}
		r := d.round()
		sent := copyOf(r)
		want := d.model.carryOut(r)
		exchange(t, s, r)
		d.model.compare(t, r, sent, want)
		if len(r.Keys) > 0 && d.IntN(4) == 0 {
			d.model.compareLife(t, s, r.Partition, &r.Keys[0])
		}
		d.recordSettled(r, sent)
		d.keepCopy(r)
	}
}

// testConcurrentWriters runs several writers that count the same keys at the same time, each
// sending some of its rounds again, and compares the cells with the writers' own records.
func testConcurrentWriters(t *testing.T, s syncer.Store) {
	seed := Seed(t)
	const writers, rounds = 6, 30
	ledgers := make([]model, writers)
	var wg sync.WaitGroup
	for w := range writers {
		ledgers[w] = model{}
		wg.Go(func() {
			d := rand.New(rand.NewPCG(seed, uint64(w+2)))
			for seq := range uint64(rounds) {
				sendSome(t, s, d, ledgers[w], fmt.Sprint("w", w), seq+1)
			}
		})
	}
	wg.Wait()
	for partition := range modelPartitions {
		for i := range modelKeys {
			k := key(fmt.Sprint("key-", i))
			want := content{}
			for _, l := range ledgers {
				for p, n := range l.partition(partition).keys[nameOf(&k)] {
					want[p] += n
				}
			}
			got := load(t, s, partition, nil, k.Key)
			if !maps.Equal(got, want) {
				t.Errorf("%s in partition %d holds %v, want %v", k.Key, partition, got, want)
			}
		}
	}
}

// sendSome sends one round for each partition, one to three times, as if replies had been lost.
func sendSome(t *testing.T, s syncer.Store, d *rand.Rand, ledger model, writer string,
	seq uint64) {
	var batch []*syncer.Round
	for partition := range modelPartitions {
		r := &syncer.Round{Partition: partition, Now: start + d.Int64N(10_000), Writer: writer,
			Seq: seq, Acked: seq - 1}
		for i := range modelKeys {
			k := key(fmt.Sprint("key-", i), bucket(0, d.Int64N(4), 1+d.Int64N(9)), bucket(1, 0, 1))
			if i%2 == 1 {
				k.Adds = append(k.Adds, moment(d.Int64N(9000), 1))
			}
			r.Keys = append(r.Keys, k)
		}
		ledger.carryOut(r)
		batch = append(batch, r)
	}
	for range 1 + d.IntN(3) {
		for _, r := range batch {
			r.Err, r.Lost = nil, false
			r.Expect(syncer.Told{})
		}
		// Don't call exchange here: only the test's own goroutine may end the test.
		s.Exchange(t.Context(), batch)
		for _, r := range batch {
			if r.Err != nil || r.Lost {
				t.Errorf("round %d of %s: lost %v, %v", seq, writer, r.Lost, r.Err)
			}
		}
	}
}
