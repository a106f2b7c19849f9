package mirror

import (
	"cmp"
	"slices"
)

// strip counts the calls whose keys a mapping shortens by a prefix.
type strip struct {
	StripReport

	matched bool // one of the keys began with it
}

// RecordUnknown accounts for a call of a script with this SHA-1 that may be a verdict.
func (m *Mirror) RecordUnknown(sha string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.counted.UnknownCalls++
	m.book.counted.LastUnknown = sha
}

// RecordStrip accounts for a call whose key should begin with a prefix, and whether it does.
func (m *Mirror) RecordStrip(prefix, key string, matched bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.book.strips[prefix]
	if s == nil {
		s = &strip{StripReport: StripReport{Strip: prefix, Example: key}}
		m.book.strips[prefix] = s
	}
	s.Calls++
	s.matched = s.matched || matched
}

// unmatchedStrips lists the prefixes that no key begins with.
func (b *book) unmatchedStrips() (list []StripReport) {
	for _, s := range b.strips {
		if !s.matched {
			list = append(list, s.StripReport)
		}
	}
	slices.SortFunc(list, func(x, y StripReport) int { return cmp.Compare(x.Strip, y.Strip) })
	return list
}
