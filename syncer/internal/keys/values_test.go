package keys_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/store"
)

// seenLog is a log of when each value of a key was last seen.
type seenLog map[uint64]int64

// in returns how many values were last seen after a time.
func (l seenLog) in(after int64) (n int64) {
	for _, seen := range l {
		if seen > after {
			n++
		}
	}
	return n
}

// valuesModel is a key of values beside a store and a log.
type valuesModel struct {
	*keys.Keyspace
	t      *testing.T
	rnd    *rand.Rand
	e      keys.Entry
	now    int64
	most   int
	log    seenLog
	stored seenLog
}

const day = 86_400_000

func newValuesModel(t *testing.T, rnd *rand.Rand, most int) *valuesModel {
	m := &valuesModel{t: t, rnd: rnd, now: 1_700_000_000_000, most: most, log: seenLog{},
		stored: seenLog{}}
	names := keys.NewNamespaces()
	names.Add(&keys.Namespace{Ladder: leaparray.Default()})
	clock := keys.Clock{Now: func() int64 { return m.now }, Opened: m.now}
	s := keys.New(slab.New(1<<26), &names, clock)
	s.Stored = &keys.StoredHashes{}
	m.Keyspace = &s
	ns, key := []byte("@values/default"), []byte("/k")
	m.e = s.EntryAt(s.InsertCold(names.Hash(ns, key), ns, key))
	return m
}

// see adds some values that were seen at a time.
func (m *valuesModel) see(n, among int, at int64) {
	var values []uint64
	for range n {
		values = append(values, leaparray.CleanHash(hashOf(m.rnd.IntN(among))))
	}
	slices.Sort(values)
	values = slices.Compact(values)
	m.See(m.e, values, at, m.now, m.most)
	for _, hash := range values {
		m.log[hash] = max(m.log[hash], at)
	}
}

// hashOf returns the hash of a value (the finalizer of SplitMix64).
func hashOf(value int) uint64 {
	z := uint64(value) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// flush tells the store what it lacks, and acknowledges it unless the answer is lost.
func (m *valuesModel) flush(answered bool) {
	var told []store.Bucket
	v := m.ValuesOf(m.e)
	for i := range v.B.Len() {
		hash, seen := v.B.At(i)
		told = append(told, store.Bucket{Stretch: leaparray.ValueAt(hash), N: seen})
	}
	m.EachIdleValue(m.e, m.now, func(hash uint64, seen int64) {
		if v.B.Seen(hash) == 0 {
			told = append(told, store.Bucket{Stretch: leaparray.ValueAt(hash), N: -seen})
		}
	})
	for i := range told {
		at := &told[i]
		hash := at.ValueHash()
		if held := m.stored[hash]; at.N > held {
			m.stored[hash] = at.N
		} else if -at.N >= held {
			delete(m.stored, hash)
		}
		at.Stored = m.stored[hash]
	}
	if !answered {
		return
	}
	slices.SortFunc(told, func(a, b store.Bucket) int {
		return cmp.Compare(a.ValueHash(), b.ValueHash())
	})
	if !m.AcknowledgeValues(m.e, told) {
		m.t.Error("the store has something else than expected")
	}
	m.DropPendingValues(m.e, told)
	if b := m.ValuesOf(m.e).B; len(b) > 0 {
		m.t.Errorf("%d values are still pending", b.Len())
	}
}

// reload evicts the key's values and reads them from the store.
func (m *valuesModel) reload() {
	m.flush(true)
	var cells []leaparray.Cell
	for hash, seen := range m.stored {
		cells = append(cells, leaparray.Cell{Stretch: leaparray.ValueAt(hash), N: seen})
	}
	m.DropSynced(m.e)
	m.ReplaceSynced(m.e, cells)
}

// check compares the counts of windows with the log.
func (m *valuesModel) check() {
	for _, window := range []int64{1, 1000, 60_000, 3_600_000, day} {
		got := m.ValuesOf(m.e).Count(m.now-window, m.now)
		want := m.log.in(m.now - window)
		if got.Error == 0 && (got.Min != want || got.Max != want || got.Count != want) {
			m.t.Fatalf("%d ms: %+v, want %d", window, got, want)
		}
		if got.Error > 0 && m.log.in(m.now-day-3_600_000) <= int64(m.most)/4 {
			m.t.Fatalf("%d ms: %+v is an estimate, of %d values", window, got, len(m.log))
		}
	}
	if n := m.ValuesOf(m.e).B.Len(); int64(n) != m.PendingBuckets {
		m.t.Fatalf("%d pending, counted as %d", n, m.PendingBuckets)
	}
}

// TestValuesModel adds values, flushes them with and without an answer, and reads them again. What
// is no estimate is exact.
func TestValuesModel(t *testing.T) {
	first := seed.First()
	t.Logf("seed %d", first)
	for i := range uint64(8) {
		rnd := rand.New(rand.NewPCG(first, i))
		m := newValuesModel(t, rnd, 1<<rnd.IntN(10))
		m.NoStore = i%4 == 0
		among := 1 + rnd.IntN(2000)
		for range 400 {
			m.now += rnd.Int64N(1 << rnd.IntN(24))
			switch op := rnd.IntN(10); {
			case op < 6 || m.NoStore:
				m.see(1+rnd.IntN(20), among, m.now-rnd.Int64N(1<<rnd.IntN(20)))
			case op < 8:
				m.flush(true)
			case op < 9:
				m.flush(false)
			default:
				m.reload()
			}
			m.check()
		}
		if most := 2 * max(m.most, 64); len(m.stored) > 4*most {
			t.Errorf("the store keeps %d values, of at most %d", len(m.stored), m.most)
		}
	}
}

// TestSampledValues adds many more values than a key has. The number lies within three errors, and
// once few are left in the windows they are exact again.
func TestSampledValues(t *testing.T) {
	rnd := rand.New(rand.NewPCG(seed.First(), 3))
	m := newValuesModel(t, rnd, 1024)
	for range 3000 {
		m.now += 10
		m.see(20, 1<<40, m.now)
		if rnd.IntN(10) == 0 {
			m.flush(true)
		}
	}
	got := m.ValuesOf(m.e).Count(m.now-day, m.now)
	if want := int64(len(m.log)); got.Error == 0 || got.Error > 0.05 ||
		float64(max(got.Count-want, want-got.Count)) > 4*got.Error*float64(want) {
		t.Errorf("%+v, want about %d", got, want)
	}
	if n := m.ValuesOf(m.e).Len(); n > 1024 || n < 256 {
		t.Errorf("it has %d values, of at most 1024", n)
	}
	// There is room for three times 20 values, once some were left out.
	for tries := 0; tries < 3 && got.Error > 0; tries++ {
		left := m.now
		m.now += day / 4
		m.see(20, 1<<40, m.now)
		m.flush(true)
		got = m.ValuesOf(m.e).Count(left, m.now)
	}
	if got.Error != 0 || got.Count != 20 {
		t.Errorf("after the last value was left out: %+v, want 20", got)
	}
}
