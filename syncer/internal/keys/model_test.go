package keys_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
)

// model is a keyspace, and the two numbers that each of its keys should have.
type model struct {
	*keys.Keyspace
	t     *testing.T
	rnd   *rand.Rand
	names *keys.Namespaces
	now   int64
	want  map[string]struct{ synced, pending int64 }
}

// entry returns the entry of a key, and makes it if there is none.
func (m *model) entry(key string) keys.Entry {
	hash := m.names.Hash(nil, []byte(key))
	at := m.Find(hash, nil, []byte(key))
	if at == 0 {
		at = m.InsertCold(hash, nil, []byte(key))
	}
	return m.EntryAt(at)
}

// acknowledge moves all pending counts of a key to the synced ones, like a round.
func (m *model) acknowledge(e keys.Entry) {
	l := m.Ladder(e)
	var adds []leaparray.Cell
	l.EachCell(m.PendingOf(e), func(at leaparray.Stretch, n int64) bool {
		adds = append(adds, leaparray.Cell{Stretch: at, N: n})
		return true
	})
	for _, b := range adds {
		if !m.AddFlushed(e, b.Stretch, b.N) {
			m.t.Error("the store's counts are not known")
		}
		m.SubtractPending(e, b.Stretch, b.N)
	}
	m.ReleaseEmptyPending(e)
}

// step makes a random change.
func (m *model) step() {
	key := fmt.Sprint("k", m.rnd.IntN(200))
	e, w := m.entry(key), m.want[key]
	m.now += m.rnd.Int64N(300)
	e.SetLastUsed(m.Clock.Second())
	switch m.rnd.IntN(10) {
	case 0:
		m.acknowledge(e)
		w.synced, w.pending = w.synced+w.pending, 0
	case 1:
		cell := leaparray.Cell{Stretch: leaparray.Moment(m.now), N: m.rnd.Int64N(9)}
		m.ReplaceSynced(e, []leaparray.Cell{cell})
		w.synced = cell.N
	case 2:
		m.EvictOne(m.Clock.Second(), keys.AnySpace)
	case 3:
		m.Arena.Evacuate(1000)
		m.EvacuateSome(0, m.Slots(), keys.NeverIdle, math.MaxInt)
	case 4:
		m.Compact()
	default:
		n := 1 + m.rnd.Int64N(5)
		m.Count(e, m.Ladder(e), m.now, n, m.now)
		w.pending += n
	}
	m.want[key] = w
}

// check compares all keys with the model. Only keys without pending counts may be gone.
func (m *model) check() {
	buckets := int64(0)
	for key, w := range m.want {
		at := m.Find(m.names.Hash(nil, []byte(key)), nil, []byte(key))
		if at == 0 {
			if w.pending != 0 {
				m.t.Fatalf("%s is gone, with %d pending", key, w.pending)
			}
			delete(m.want, key)
			continue
		}
		e := m.EntryAt(at)
		l := m.Ladder(e)
		synced, pending := l.Total(m.SyncedOf(e)), l.Total(m.PendingOf(e))
		if synced != w.synced || pending != w.pending {
			m.t.Fatalf("%s: %d synced and %d pending, want %d and %d", key, synced, pending,
				w.synced, w.pending)
		}
		buckets += int64(l.CellCount(m.PendingOf(e)))
	}
	if buckets != m.PendingBuckets || m.Len() != len(m.want) {
		m.t.Fatalf("%d buckets of %d keys, want %d of %d", m.PendingBuckets, m.Len(), buckets,
			len(m.want))
	}
}

// TestKeyspaceModel counts, acknowledges, loads, evicts and moves keys at random.
func TestKeyspaceModel(t *testing.T) {
	first := seed.First()
	t.Logf("seed %d", first)
	names := keys.NewNamespaces()
	names.Add(&keys.Namespace{Ladder: leaparray.Default()})
	m := &model{t: t, rnd: rand.New(rand.NewPCG(first, 1)), names: &names, now: 1_700_000_000_000,
		want: map[string]struct{ synced, pending int64 }{}}
	clock := keys.Clock{Now: func() int64 { return m.now }, Opened: m.now}
	s := keys.New(slab.New(1<<24), &names, clock)
	s.Stored = &keys.StoredHashes{}
	m.Keyspace = &s
	for range 3000 {
		m.step()
		m.check()
	}
	if m.Evicted == 0 {
		t.Error("no key was evicted")
	}
}
