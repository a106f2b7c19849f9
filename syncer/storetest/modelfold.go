package storetest

import (
	"maps"
	"testing"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// foldMany folds a key that has grown and has too many cells.
func (s *modelPartition) foldMany(r *syncer.Round, k *syncer.KeyRound, grown bool) {
	name := nameOf(k)
	c := s.keys[name]
	if c == nil || k.Ladder == nil || len(k.Adds) == 0 {
		return
	}
	s.reported[name] = maps.Clone(c)
	folded := maps.Clone(c)
	if folded.fold(k.Ladder, r.Now, 0); grown && len(c) > k.Ladder.MaxCells() {
		s.put(name, folded)
		folded = c
	}
	s.otherwise[name] = folded
}

// put replaces the cells of a key.
func (s *modelPartition) put(name string, c content) {
	if s.keys[name] = c; len(c) == 0 {
		delete(s.keys, name)
	}
}

// adoptFolds adopts from a store that does not read all cells whether the keys of a round have
// folded.
func (m model) adoptFolds(t *testing.T, store syncer.Store, r *syncer.Round) {
	t.Helper()
	s := m.partition(r.Partition)
	for i := range r.Keys {
		k := &r.Keys[i]
		other, ok := s.otherwise[nameOf(k)]
		if !ok {
			continue
		}
		got := load(t, store, r.Partition, k.NS, k.Key)
		if maps.Equal(got, nonZero(other)) && !maps.Equal(got, nonZero(s.keys[nameOf(k)])) {
			s.put(nameOf(k), other)
		}
	}
}

// fold moves the cells that are due to fold. The sum stays the same, except for cells that have
// left every window.
func (c content) fold(l *leaparray.Ladder, now, exactFrom int64) {
	moved := content{}
	for _, f := range l.ListFolds(cellsOf(c), now, exactFrom) {
		if delete(c, f.Stretch); f.Into.Width > 0 {
			moved[f.Into] += f.N
		}
	}
	for s, n := range nonZero(moved) {
		c[s] += n
	}
}
