package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"twotier/syncer"
)

// model is the store as anybody can see that it is right: one at a time, nothing lost, nothing expires.
type model struct {
	seqs     map[string]uint64  // by partition and writer
	known    map[string]bool    // the writer knew the epoch
	epochs   map[int]uint64     // by partition, as the store says
	versions map[int]uint64     // by partition
	keys     map[string]content // by partition, namespace and key
}

func newModel() *model {
	return &model{map[string]uint64{}, map[string]bool{}, map[int]uint64{}, map[int]uint64{}, map[string]content{}}
}

func sequenceID(r *syncer.Round) string { return fmt.Sprint(r.Partition, " ", r.Writer) }

func keyID(partition int, k *syncer.KeyRound) string {
	return fmt.Sprintf("%d %q %q", partition, k.NS, k.Key)
}

// carryOut does what the round says, and reports whether it is lost.
func (m *model) carryOut(r *syncer.Round) (lost bool) {
	if r.Republish {
		if r.Epoch != m.epochs[r.Partition] {
			return true
		}
		m.republish(r)
		return false
	}
	stored := m.seqs[sequenceID(r)]
	if stored < r.Acked || r.Epoch != 0 && r.Epoch != m.epochs[r.Partition] {
		return true
	}
	if r.Seq <= stored {
		return false
	}
	m.seqs[sequenceID(r)], m.known[sequenceID(r)] = r.Seq, r.Epoch != 0
	if !r.Quiet {
		m.versions[r.Partition]++
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		id := keyID(r.Partition, k)
		if k.Reset || m.keys[id] == nil {
			m.keys[id] = content{}
		}
		for _, b := range k.Adds {
			m.keys[id][place{b.Level, b.Index}] += b.N
		}
		for _, b := range k.Expired {
			delete(m.keys[id], place{b.Level, b.Index})
		}
	}
	return false
}

func (m *model) republish(r *syncer.Round) {
	id := sequenceID(r)
	if m.known[id] && m.seqs[id] >= r.Acked {
		return
	}
	m.versions[r.Partition]++
	if r.Final {
		m.seqs[id], m.known[id] = r.Acked, true
	}
	for i := range r.Keys {
		id := keyID(r.Partition, &r.Keys[i])
		if m.keys[id] == nil {
			m.keys[id] = content{}
		}
		for _, b := range r.Keys[i].Adds {
			p := place{b.Level, b.Index}
			m.keys[id][p] = max(m.keys[id][p], b.N)
		}
	}
}

func (m *model) content(partition int, k *syncer.KeyRound) content {
	c := maps.Clone(m.keys[keyID(partition, k)])
	maps.DeleteFunc(c, func(_ place, n int64) bool { return n == 0 })
	return c
}

// compare checks what the store said of a round that the model has carried out too.
func (m *model) compare(t *testing.T, r *syncer.Round, lost bool) {
	t.Helper()
	if r.Lost != lost {
		t.Fatalf("%+v: lost is %v, want %v", r, r.Lost, lost)
	}
	if e, known := m.epochs[r.Partition]; r.Epoch != 0 && known && r.Epoch != e {
		t.Fatalf("%+v: epoch is %d, want %d", r, r.Epoch, e)
	} else if r.Epoch != 0 {
		m.epochs[r.Partition] = r.Epoch
	}
	if lost {
		return
	}
	if want := m.versions[r.Partition]; r.Version != want {
		t.Fatalf("%+v: version is %d, want %d", r, r.Version, want)
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		if k.Err != nil {
			t.Fatalf("%s: %v", k.Key, k.Err)
		}
		if r.Republish {
			continue
		}
		have := m.content(r.Partition, k)
		for _, b := range k.Adds {
			if want := have[place{b.Level, b.Index}]; b.Stored != want {
				t.Fatalf("%+v: stored is %d, want %d", b, b.Stored, want)
			}
		}
		if got := contentOf(k.Loaded); k.Load && !maps.Equal(got, have) {
			t.Fatalf("%s: loaded %v, want %v", k.Key, got, have)
		}
	}
}

// dice makes random rounds.
type dice struct {
	*rand.Rand
	model *model
	acked map[string]uint64
	past  []*syncer.Round
}

const (
	modelPartitions = 3
	modelKeys       = 6
)

// round is mostly the next of a writer, and else one that has been sent before, or one after a loss that never was.
func (d *dice) round() *syncer.Round {
	if len(d.past) > 0 && d.IntN(4) == 0 {
		return d.past[d.IntN(len(d.past))]
	}
	r := &syncer.Round{Partition: d.IntN(modelPartitions), Writer: fmt.Sprint("w", d.IntN(3))}
	r.Acked = d.acked[sequenceID(r)]
	if d.IntN(3) > 0 {
		r.Epoch = d.model.epochs[r.Partition]
	}
	r.Quiet = d.IntN(8) == 0
	switch d.IntN(12) {
	case 0: // a read
	case 1:
		r.Acked += 1000
		r.Seq = r.Acked + 1
	case 2:
		r.Republish, r.Final, r.Quiet = true, d.IntN(2) == 0, false
		r.Epoch = d.model.epochs[r.Partition]
		r.Acked += 3 * uint64(d.IntN(2)) // with nothing lost it does nothing
	case 3:
		r.Seq = r.Acked + 1
		r.Epoch += uint64(d.IntN(2)) // of what was there once
	default:
		r.Seq = r.Acked + 1
	}
	for i := range modelKeys {
		if d.IntN(3) == 0 {
			r.Keys = append(r.Keys, d.key(r, i))
		}
	}
	return r
}

func (d *dice) key(r *syncer.Round, i int) syncer.KeyRound {
	k := syncer.KeyRound{Key: fmt.Append(nil, "key-", i/2), TTL: 3_600_000, Load: d.IntN(3) == 0, New: d.IntN(2) == 0}
	if i%2 == 1 {
		k.NS = []byte("ns")
	}
	write := r.Seq > 0
	k.Reset = write && d.IntN(10) == 0
	for idx := range int64(8) {
		level := uint8(d.IntN(3))
		switch d.IntN(4) {
		case 0:
			k.Adds = append(k.Adds, bucket(level, idx, d.Int64N(100)-20))
		case 1:
			if write {
				k.Expired = append(k.Expired, bucket(level, idx, 0))
			}
		}
	}
	if r.Republish {
		k.Load = false
		for i := range k.Adds {
			k.Adds[i].N = max(1, k.Adds[i].N)
		}
	}
	return k
}

func (d *dice) settled(r *syncer.Round) {
	d.past = append(d.past, r)
	id := sequenceID(r)
	if r.Seq > 0 && !r.Lost {
		d.acked[id] = max(d.acked[id], r.Seq)
	}
	if r.Final && !r.Lost {
		d.acked[id] = max(d.acked[id], r.Acked)
	}
}

func testModel(t *testing.T, s syncer.Store) {
	seed := Seed(t)
	m := newModel()
	d := &dice{rand.New(rand.NewPCG(seed, 1)), m, map[string]uint64{}, nil}
	for range 400 {
		r := d.round()
		lost := m.carryOut(r)
		exchange(t, s, r)
		m.compare(t, r, lost)
		d.settled(r)
	}
}

// testConcurrentWriters has several writers count the same keys at the same time, each sending some of its rounds again,
// and compares the sums with what they wrote down.
func testConcurrentWriters(t *testing.T, s syncer.Store) {
	seed := Seed(t)
	const writers, rounds = 6, 30
	ledgers := make([]*model, writers)
	var wg sync.WaitGroup
	for w := range writers {
		ledgers[w] = newModel()
		wg.Go(func() {
			d := rand.New(rand.NewPCG(seed, uint64(w+2)))
			for seq := range uint64(rounds) {
				sendSome(t, s, d, ledgers[w], fmt.Sprint("w", w), seq+1)
			}
		})
	}
	wg.Wait()
	sums := map[string]content{}
	for _, l := range ledgers {
		for id, c := range l.keys {
			if sums[id] == nil {
				sums[id] = content{}
			}
			for p, n := range c {
				sums[id][p] += n
			}
		}
	}
	for partition := range modelPartitions {
		for i := range modelKeys {
			k := key(fmt.Sprint("key-", i))
			got, want := load(t, s, partition, nil, k.Key), sums[keyID(partition, &k)]
			if !maps.Equal(got, want) {
				t.Errorf("%s in partition %d holds %v, want %v", k.Key, partition, got, want)
			}
		}
	}
}

// sendSome sends one round for each partition, up to three times, as if replies had been lost.
func sendSome(t *testing.T, s syncer.Store, d *rand.Rand, ledger *model, writer string, seq uint64) {
	var batch []*syncer.Round
	for partition := range modelPartitions {
		r := &syncer.Round{Partition: partition, Writer: writer, Seq: seq, Acked: seq - 1}
		for i := range modelKeys {
			r.Keys = append(r.Keys, key(fmt.Sprint("key-", i), bucket(0, d.Int64N(4), 1+d.Int64N(9)), bucket(1, 0, 1)))
		}
		ledger.carryOut(r)
		batch = append(batch, r)
	}
	for range 1 + d.IntN(3) {
		for _, r := range batch {
			r.Err, r.Lost = nil, false
		}
		// Not exchange: only the test's own goroutine may end the test.
		s.Exchange(t.Context(), batch)
		for _, r := range batch {
			if r.Err != nil || r.Lost {
				t.Errorf("round %d of %s: lost %v, %v", seq, writer, r.Lost, r.Err)
			}
		}
	}
}
