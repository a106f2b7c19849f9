package redisstore

import (
	"maps"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// Numbers returns, for processes that have the same ladders and can't ask Redis, the levels of
// those namespaces in which a level's number is not its position in the ladder; "" if there are
// none.
func (s *Store) Numbers() string {
	if text := s.ladders.numbers.Load(); text != nil {
		return *text
	}
	return ""
}

// Learn takes over what the Numbers of another process with the same ladders are. It reports
// whether this one can use them: it must not exchange counts by number with that one otherwise. It
// does nothing if Redis has answered.
func (s *Store) Learn(numbers string) bool {
	if s.compared.Load() {
		return true
	}
	all, ok := s.parseNumbers(numbers)
	if !ok {
		return false
	}
	now, stored := time.Now(), map[string]*leaparray.StoredLevels{}
	for ns, levels := range all {
		t, ok := levels.storedLevels(s.opt.Ladders[ns], now.UnixMilli())
		if !ok {
			return false
		}
		stored[ns] = &t
	}
	if s.ladders.learned.CompareAndSwap(nil, &all) {
		s.ladders.numbers.CompareAndSwap(nil, &numbers)
		for ns, t := range stored {
			s.ladders.stored[ns].CompareAndSwap(nil, t)
		}
	}
	for ns, t := range stored { // it may have learned of another one before
		if mine := s.ladders.stored[ns].Load(); mine == nil || mine.ID != t.ID {
			return false
		}
	}
	return true
}

// Unnumbered reports that this process has seen what Redis has and counts by levels that have no
// number there yet, because Join failed.
func (s *Store) Unnumbered() bool {
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	if !s.compared.Load() {
		return false
	}
	for ns, l := range s.opt.Ladders {
		if _, ok := s.ladders.levels[ns].storedLevels(l, 0); !ok {
			return true
		}
	}
	return false
}

// parseNumbers is the inverse of numbersOf.
func (s *Store) parseNumbers(text string) (map[string]levels, bool) {
	all := map[string]levels{}
	for part := range strings.SplitSeq(text, ";") {
		ns, of, _ := strings.Cut(part, "=")
		levels, err := parseLevels(of)
		if err != nil || s.opt.Ladders[ns] == nil {
			return nil, false
		}
		all[ns] = levels
	}
	usual, ok := all[syncer.DefaultNamespace]
	for ns := range s.opt.Ladders {
		if _, listed := all[ns]; ok && !listed && s.usual(ns) {
			all[ns] = usual
		}
	}
	return all, true
}

// numbersOf returns Numbers where the levels of namespaces are these. A namespace with the ladder
// of the default one is left out if it has the same numbers, because others need not list it.
func (s *Store) numbersOf(all map[string]levels) string {
	var parts []string
	for _, ns := range slices.Sorted(maps.Keys(s.opt.Ladders)) {
		if _, ok := all[ns].storedLevels(s.opt.Ladders[ns], 0); !ok {
			continue // this process has not joined yet
		}
		if ns == syncer.DefaultNamespace || !s.usual(ns) {
			if !all[ns].inOrder(s.opt.Ladders[ns]) {
				parts = append(parts, ns+"="+all[ns].String())
			}
			continue
		}
		for _, lv := range s.opt.Ladders[ns].Levels() {
			if all[ns].find(lv.Width) != all[syncer.DefaultNamespace].find(lv.Width) {
				parts = append(parts, ns+"="+all[ns].String())
				break
			}
		}
	}
	return strings.Join(parts, ";")
}

// usual reports whether a namespace has the ladder of the default one.
func (s *Store) usual(ns string) bool {
	return s.opt.Ladders[ns].String() == s.opt.Ladders[syncer.DefaultNamespace].String()
}

// inOrder reports whether the number of each level of a ladder is its position there.
func (all levels) inOrder(l *leaparray.Ladder) bool {
	for i, lv := range l.Levels() {
		if all.find(lv.Width) != i {
			return false
		}
	}
	return true
}

// known returns what this process knows of the levels of a namespace, from Redis or from others.
func (t *ladderState) known(ns string) levels {
	if all, ok := t.levels[ns]; ok {
		return all
	}
	if all := t.learned.Load(); all != nil {
		return (*all)[ns]
	}
	return nil
}
