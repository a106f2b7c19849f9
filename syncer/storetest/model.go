package storetest

import (
	"maps"
	"math"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// model is an obviously correct store: it does one thing at a time, and nothing expires.
type model map[int]*shelf

// shelf is a partition.
type shelf struct {
	storeVersion
	left    bool // the epoch began with what a loss left behind
	last    change
	changes map[string]change // by the store's names for them
	writers map[string]sequence
	keys    map[string]content
	// lives is the time to live of each key as last set, 0 if it is not known.
	lives    map[string]int64
	restored map[string]content // in this epoch
	reset    map[string]bool    // in this epoch
}

type storeVersion struct {
	epoch, version, quieted uint64
	lastChange              string
}

// change is a round that was applied.
type change struct {
	writer string
	seq    uint64
}

type sequence struct{ n, nonce uint64 }

// outcome is what a store must report about a round.
type outcome struct{ lost, used, later, first bool }

func newShelf() *shelf {
	return &shelf{changes: map[string]change{},
		writers: map[string]sequence{}, keys: map[string]content{},
		lives: map[string]int64{}, restored: map[string]content{}, reset: map[string]bool{}}
}

func (m model) shelf(partition int) *shelf {
	if m[partition] == nil {
		m[partition] = newShelf()
	}
	return m[partition]
}

// copy returns a copy of the model. All copies share the store's names for changes, which are never
// forgotten.
func (m model) copy() model {
	c := model{}
	for id, s := range m {
		o := newShelf()
		o.storeVersion, o.left, o.last, o.changes = s.storeVersion, s.left, s.last, s.changes
		maps.Copy(o.writers, s.writers)
		maps.Copy(o.lives, s.lives)
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

// carryOut applies a round to the model.
func (m model) carryOut(r *syncer.Round) (o outcome) {
	s := m.shelf(r.Partition)
	behind := r.Epoch != s.epoch || s.version < r.Version || s.quieted < r.Quieted ||
		s.lacks(r.LastChange)
	stored := s.writers[r.Writer]
	switch {
	case stored.n < r.Acked || (r.Epoch != 0 || r.Republish) && behind:
		return outcome{lost: true}
	case r.Seq > 0 && r.Seq == stored.n && r.Nonce != stored.nonce:
		return outcome{used: true}
	case r.Republish && r.Seq > stored.n:
		s.note(r)
		s.republish(r)
		return o
	}
	begun := s.epoch == 0
	if o.first = begun; begun {
		s.begin(false)
	}
	if r.Seq <= stored.n {
		o.later = r.Seq > 0 && r.Seq < stored.n
		return o
	}
	s.note(r)
	if r.Quiet {
		s.quieted++
	} else if !begun {
		s.version++
	}
	for i := range r.Keys {
		s.count(&r.Keys[i])
	}
	return o
}

// note records that a round was applied.
func (s *shelf) note(r *syncer.Round) {
	s.writers[r.Writer] = sequence{r.Seq, r.Nonce}
	s.last, s.lastChange = change{r.Writer, r.Seq}, unnamed
}

// lacks reports whether a change, as named by the store, is missing from the data.
func (s *shelf) lacks(name string) bool {
	told := s.changes[name]
	return name != "" && s.writers[told.writer].n < told.seq
}

// unnamedEpoch stands for an epoch that the store has yet to name, and unnamed for a change that it
// has yet to name.
const (
	unnamedEpoch = math.MaxUint64
	unnamed      = "unnamed"
)

func (s *shelf) begin(left bool) {
	s.epoch, s.left = unnamedEpoch, left
	s.version++
	clear(s.restored)
	clear(s.reset)
}

func (s *shelf) count(k *syncer.KeyRound) {
	name := nameOf(k)
	if k.Reset {
		delete(s.keys, name)
		delete(s.lives, name)
		s.reset[name] = true
	}
	c := s.at(name)
	for _, b := range k.Adds {
		c[bucketID{b.Level, b.Index}] += b.N
	}
	for _, b := range k.Expired {
		delete(c, bucketID{b.Level, b.Index})
	}
	s.end(k, name)
}

func (s *shelf) at(name string) content {
	if s.keys[name] == nil {
		s.keys[name] = content{}
	}
	return s.keys[name]
}

// end does what follows every write to a key.
func (s *shelf) end(k *syncer.KeyRound, name string) {
	c := s.keys[name]
	if k.Ladder != nil && len(c) > k.Ladder.Most() {
		newest := map[uint8]int64{}
		for p := range c {
			newest[p.level] = max(newest[p.level], p.idx)
		}
		maps.DeleteFunc(c, func(p bucketID, _ int64) bool {
			return p.idx < newest[p.level]-k.Ladder.Keep(int(p.level))
		})
	}
	if k.TTL > 0 {
		s.lives[name] = k.TTL
	}
	if len(c) == 0 {
		s.lives[name] = 0
	}
}

func (s *shelf) republish(r *syncer.Round) {
	if s.epoch <= r.After {
		s.begin(s.epoch != 0)
	} else {
		s.version++
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		name := nameOf(k)
		if s.reset[name] {
			if len(s.keys[name]) > 0 {
				s.end(k, name)
			}
			continue
		}
		c := s.at(name)
		if s.restored[name] == nil {
			s.restored[name] = content{}
		}
		for _, b := range k.Adds {
			p := bucketID{b.Level, b.Index}
			had, ok := s.restored[name][p]
			if !ok && s.left {
				had = c[p]
			}
			s.restored[name][p] = max(had, b.N)
			// The newest bucket of a level is kept even if it is zero.
			if b.N > had || b.N == 0 && had == 0 {
				c[p] += b.N - had
			}
		}
		s.end(k, name)
	}
}

// content returns the non-zero buckets of a key.
func (s *shelf) content(name string) content {
	c := maps.Clone(s.keys[name])
	maps.DeleteFunc(c, func(_ bucketID, n int64) bool { return n == 0 })
	return c
}

// compare checks the store's answer to a round that was applied to the model too.
func (m model) compare(t *testing.T, r, sent *syncer.Round, want outcome) {
	t.Helper()
	s := m.shelf(r.Partition)
	if got := (outcome{r.Lost, r.Used, r.Later, r.First}); got != want {
		t.Fatalf("%+v: %+v, want %+v", sent, got, want)
	}
	if s.epoch == unnamedEpoch {
		if floor := sent.After; r.Epoch <= floor {
			t.Fatalf("%+v: it draws epoch %d, want more than %d", sent, r.Epoch, floor)
		}
		s.epoch = r.Epoch
	}
	if s.lastChange == unnamed {
		s.lastChange, s.changes[r.LastChange] = r.LastChange, s.last
	}
	if got := versionOf(r); got != s.storeVersion {
		t.Fatalf("%+v: it has %+v, want %+v", sent, got, s.storeVersion)
	}
	if want.lost || want.used {
		return
	}
	for i := range r.Keys {
		m.compareKey(t, &r.Keys[i], s.content(nameOf(&r.Keys[i])))
	}
}

func versionOf(r *syncer.Round) storeVersion {
	return storeVersion{r.Epoch, r.Version, r.Quieted, r.LastChange}
}

func (m model) compareKey(t *testing.T, k *syncer.KeyRound, have content) {
	t.Helper()
	if k.Err != nil {
		t.Fatalf("%s: %v", k.Key, k.Err)
	}
	for _, b := range k.Adds {
		if want := have[bucketID{b.Level, b.Index}]; b.Stored != want && want != 0 {
			t.Fatalf("%s: %+v: stored is %d, want %d", k.Key, b, b.Stored, want)
		}
	}
	if !k.Load {
		return
	}
	if got := contentOf(k.Loaded); !maps.Equal(got, have) {
		t.Fatalf("%s: loaded %v, want %v", k.Key, got, have)
	}
	if k.Ladder != nil && len(k.Loaded) > k.Ladder.Most() {
		t.Fatalf("%s: it holds %d buckets, its ladder has %d", k.Key, len(k.Loaded),
			k.Ladder.Most())
	}
}

// compareLife checks how long a key has left to live.
func (m model) compareLife(t *testing.T, s syncer.Store, partition int, k *syncer.KeyRound) {
	t.Helper()
	ttl, ok := s.(TTLer)
	want := time.Duration(m.shelf(partition).lives[nameOf(k)]) * time.Millisecond
	if !ok || want == 0 {
		return
	}
	if got := ttl.TTL(t, partition, k.NS, k.Key); got > want || got < want-6*slack {
		t.Fatalf("%s: it lives for %v more, want %v", k.Key, got, want)
	}
}

// small returns a ladder with few buckets.
func small(t testing.TB) *leaparray.Ladder {
	l, err := leaparray.NewLadder(leaparray.Level{Width: time.Second, Count: 1},
		leaparray.Level{Width: 2 * time.Second, Count: 2},
		leaparray.Level{Width: 4 * time.Second, Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
