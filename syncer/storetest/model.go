package storetest

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// model is an obviously correct store: it does one thing at a time, and nothing expires.
type model map[int]*modelPartition

// modelPartition is a partition.
type modelPartition struct {
	syncer.Told
	left    bool // the epoch began with the remains after a loss
	last    change
	changes map[string]change // by the store's names for them
	writers map[string]sequence
	keys    map[string]content
	// lives holds the time to live of each key as last set, or 0 if it is not known.
	lives    map[string]int64
	logged   map[string]bool    // keys that may have a log
	restored map[string]content // in this epoch
	reset    map[string]bool    // in this epoch
}

// change is a round that was applied.
type change struct {
	writer string
	seq    uint64
}

type sequence struct{ n, nonce uint64 }

// outcome is the outcome of a round that a store must report.
type outcome struct{ lost, used, later, first bool }

func newModelPartition() *modelPartition {
	return &modelPartition{changes: map[string]change{},
		writers: map[string]sequence{}, keys: map[string]content{},
		lives: map[string]int64{}, logged: map[string]bool{},
		restored: map[string]content{}, reset: map[string]bool{}}
}

func (m model) partition(partition int) *modelPartition {
	if m[partition] == nil {
		m[partition] = newModelPartition()
	}
	return m[partition]
}

// copy returns a copy of the model. All copies share the store's names for changes, which are never
// dropped.
func (m model) copy() model {
	c := model{}
	for id, s := range m {
		o := newModelPartition()
		o.Told, o.left, o.last, o.changes = s.Told, s.left, s.last, s.changes
		maps.Copy(o.writers, s.writers)
		maps.Copy(o.lives, s.lives)
		maps.Copy(o.logged, s.logged)
		maps.Copy(o.reset, s.reset)
		for k, v := range s.keys {
			o.keys[k] = maps.Clone(v)
		}
		for k, v := range s.restored {
			o.restored[k] = maps.Clone(v)
		}
		c[id] = o
	}
	return c
}

func nameOf(k *syncer.KeyRound) string { return string(k.NS) + "\x00" + string(k.Key) }

func (m model) carryOut(r *syncer.Round) (o outcome) {
	s := m.partition(r.Partition)
	behind := r.Epoch != s.Epoch || s.Version < r.Version || s.Quieted < r.Quieted ||
		s.lacks(r.LastChange)
	stored := s.writers[r.Writer]
	switch {
	case stored.n < r.Acked || (r.Epoch != 0 || r.Republish) && behind:
		return outcome{lost: true}
	case r.Seq > 0 && r.Seq == stored.n && r.Nonce != stored.nonce:
		return outcome{used: true}
	case r.Republish && r.Seq > stored.n:
		s.record(r)
		s.republish(r)
		return o
	}
	begun := s.Epoch == 0
	if o.first = begun; begun {
		s.begin(false)
	}
	if r.Seq <= stored.n {
		o.later = r.Seq > 0 && r.Seq < stored.n
		return o
	}
	unchanged := r.Epoch != 0 && r.Version == s.Version
	silent := unchanged && r.Quieted == s.Quieted && r.LastChange == s.LastChange
	s.record(r)
	if r.Quiet {
		s.Quieted++
	} else if !begun {
		s.Version++
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		fits := k.Content != nil && unchanged && (silent || k.ContentLog != syncer.WholeLog)
		s.count(k, fits)
	}
	return o
}

func (s *modelPartition) record(r *syncer.Round) {
	s.writers[r.Writer] = sequence{r.Seq, r.Nonce}
	s.last, s.LastChange = change{r.Writer, r.Seq}, unnamed
}

// lacks reports whether a change, as named by the store, is missing from the data.
func (s *modelPartition) lacks(name string) bool {
	told := s.changes[name]
	return name != "" && s.writers[told.writer].n < told.seq
}

// unnamedEpoch stands for an epoch that the store has yet to name, unnamed for a change that it has
// yet to name.
const (
	unnamedEpoch = math.MaxUint64
	unnamed      = "unnamed"
)

func (s *modelPartition) begin(left bool) {
	s.Epoch, s.left = unnamedEpoch, left
	s.Version++
	clear(s.restored)
	clear(s.reset)
}

func (s *modelPartition) count(k *syncer.KeyRound, fits bool) {
	name := nameOf(k)
	if k.Reset {
		delete(s.keys, name)
		s.logged[name] = false
		s.reset[name] = true
	}
	if fits && k.Rewrite {
		c := content{}
		for _, b := range k.Content {
			c[b.Stretch] = b.N
		}
		s.keys[name], s.lives[name], s.logged[name] = c, k.TTL, false
		return
	}
	if !fits && (!k.New || k.Load || k.Reset || s.keys[name] != nil) {
		s.logged[name] = true
	}
	s.add(k, k.Adds)
}

// count counts in a cell. One whose events were all taken back is gone.
func (c content) count(b syncer.Bucket) {
	if c[b.Stretch] += b.N; c[b.Stretch] == 0 && b.N != 0 {
		delete(c, b.Stretch)
	}
}

// add counts in the cells of a key, or sees its values, and sets its time to live.
func (s *modelPartition) add(k *syncer.KeyRound, adds []syncer.Bucket) {
	name := nameOf(k)
	c, had := s.keys[name], s.keys[name] != nil
	if !had {
		if len(adds) == 0 {
			return
		}
		c = content{}
		s.keys[name] = c
	}
	before := maps.Clone(c)
	for _, b := range adds {
		if b.IsValue() {
			c.see(b)
		} else {
			c.count(b)
		}
	}
	sure := true // whether the key is there if it has no counts left
	if len(c) == 0 {
		delete(s.keys, name)
		sure = hasValues(k)
	}
	if hasValues(k) {
		had = had && c.hasSome(before) // or it is made anew, of the values that were added
	}
	switch {
	case !sure:
		s.lives[name] = 0
		s.keys[name] = c // its log is there
	case k.Renew || !had:
		s.lives[name] = k.TTL
	}
}

// hasSome reports whether some cells of a key are still there, or whether it had none.
func (c content) hasSome(before content) bool {
	for s := range before {
		if _, ok := c[s]; ok {
			return true
		}
	}
	return len(before) == 0
}

func (s *modelPartition) republish(r *syncer.Round) {
	if s.Epoch <= r.After {
		s.begin(s.Epoch != 0)
	}
	s.Version++
	for i := range r.Keys {
		k := &r.Keys[i]
		name := nameOf(k)
		if s.reset[name] {
			s.add(k, nil)
			continue
		}
		if hasValues(k) {
			s.add(k, k.Adds)
			continue
		}
		if s.restored[name] == nil {
			s.restored[name] = content{}
			if s.left {
				s.restored[name] = nonZero(s.keys[name])
			}
		}
		s.logged[name] = true
		s.add(k, s.missing(name, k.Adds))
	}
}

// missing returns the part of a key's known counts that has to be added, and records it as
// restored. Marks are added too, but are no counts.
func (s *modelPartition) missing(name string, known []syncer.Bucket) (add []syncer.Bucket) {
	if len(known) == 0 {
		return nil
	}
	restored := s.restored[name]
	for _, c := range leaparray.MissingCells(cellsOf(contentOf(known)), cellsOf(restored)) {
		restored[c.Stretch] += c.N
		add = append(add, syncer.Bucket{Stretch: c.Stretch, N: c.N})
	}
	for _, b := range known {
		if b.N == 0 {
			add = append(add, b)
		}
	}
	return add
}

func cellsOf(c content) (list []leaparray.Cell) {
	for s, n := range c {
		list = append(list, leaparray.Cell{Stretch: s, N: n})
	}
	return list
}

func (m model) stretches(r *syncer.Round, k *syncer.KeyRound) []leaparray.Stretch {
	cells := maps.Keys(m.partition(r.Partition).keys[nameOf(k)])
	return slices.SortedFunc(cells, func(a, b leaparray.Stretch) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Width, b.Width))
	})
}

func nonZero(c content) content {
	o := content{}
	for s, n := range c {
		if n != 0 {
			o[s] = n
		}
	}
	return o
}

// compare checks the store's answer to a round that was applied to the model too.
func (m model) compare(t *testing.T, r, sent *syncer.Round, want outcome) {
	t.Helper()
	s := m.partition(r.Partition)
	if got := (outcome{r.Lost, r.Used, r.Later, r.First}); got != want {
		t.Fatalf("%+v: %+v, want %+v", sent, got, want)
	}
	if s.Epoch == unnamedEpoch {
		if floor := sent.After; r.Epoch <= floor {
			t.Fatalf("%+v: it draws epoch %d, want more than %d", sent, r.Epoch, floor)
		}
		s.Epoch = r.Epoch
	}
	if s.LastChange == unnamed {
		s.LastChange, s.changes[r.LastChange] = r.LastChange, s.last
	}
	if got := r.Told(); got != s.Told {
		t.Fatalf("%+v: it has %+v, want %+v", sent, got, s.Told)
	}
	if want.lost || want.used {
		return
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		m.compareKey(t, k, nonZero(s.keys[nameOf(k)]), r.Republish && !hasValues(k))
	}
}

func (m model) compareKey(t *testing.T, k *syncer.KeyRound, have content, restored bool) {
	t.Helper()
	if k.Err != nil {
		t.Fatalf("%s: %v", k.Key, k.Err)
	}
	for _, b := range k.Adds {
		if want := have[b.Stretch]; b.IsValue() && b.Stored != want {
			t.Fatalf("%s: %+v: stored is %d, want %d", k.Key, b, b.Stored, want)
		}
	}
	if (k.Load || restored) && !k.Read {
		t.Fatalf("%s: not read", k.Key)
	}
	if !k.Read {
		return
	}
	if got := contentOf(k.Loaded); !maps.Equal(got, have) {
		t.Fatalf("%s: loaded %v, want %v", k.Key, got, have)
	}
}

// compareLife checks a key's remaining time to live.
func (m model) compareLife(t *testing.T, s syncer.Store, partition int, k *syncer.KeyRound) {
	t.Helper()
	ttl, ok := s.(TTLer)
	name, p := nameOf(k), m.partition(partition)
	want := time.Duration(p.lives[name]) * time.Millisecond
	if !ok || want == 0 || len(nonZero(p.keys[name])) == 0 {
		return
	}
	if got := ttl.TTL(t, partition, k.NS, k.Key); got > want || got < want-6*slack {
		t.Fatalf("%s: it lives for %v more, want %v", k.Key, got, want)
	}
}
