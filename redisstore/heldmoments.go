package redisstore

import (
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
)

// heldMoments are the fields of a key's Hash that list moments, with the changes that a worker is
// about to make.
type heldMoments struct {
	lists layout.Lists
	// plain are the moments that have fields of their own.
	plain   []int64
	pushed  []leaparray.Cell // of one batch
	removed []int64
}

// reset forgets everything.
func (m *heldMoments) reset() { m.lists, m.plain = nil, nil }

// words returns about how much memory the fields take, in words.
func (m *heldMoments) words() (n int) {
	for _, value := range m.lists {
		n += 8 + len(value)/8
	}
	return n + len(m.plain)
}

// load records a field that lists moments.
func (m *heldMoments) load(name, value string) {
	if m.lists == nil {
		m.lists = layout.Lists{}
	}
	m.lists[name] = value
}

// change changes the number of events of a moment. Lists only grow, unless some of their moments
// have to be left out. write is called with the field of a moment that has its own, and what it
// holds from now on, 0 to delete it.
func (m *heldMoments) change(t, was, n int64, write func(t, n int64)) {
	at := leaparray.Moment(t)
	i := slices.Index(m.plain, t)
	if i < 0 && n > was && layout.IsListed(at, n-was) {
		m.pushed = append(m.pushed, leaparray.Cell{Stretch: at, N: n - was})
		return
	}
	m.removed = append(m.removed, t)
	switch listed := n == 0 || layout.IsListed(at, n); {
	case listed && n > 0:
		m.pushed = append(m.pushed, leaparray.Cell{Stretch: at, N: n})
		fallthrough
	case listed && i >= 0:
		m.plain = slices.DeleteFunc(m.plain, func(of int64) bool { return of == t })
		if i >= 0 {
			write(t, 0)
		}
	case !listed:
		if i < 0 {
			m.plain = append(m.plain, t)
		}
		write(t, n)
	}
}

// flush makes the changes in the lists. It calls write with each field that changes, and its value,
// which is empty if it is to be deleted.
func (m *heldMoments) flush(write func(name, value string)) {
	if len(m.pushed)+len(m.removed) == 0 {
		return
	}
	if m.lists == nil {
		m.lists = layout.Lists{}
	}
	var names []string
	changed := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(m.removed) > 0 {
		slices.Sort(m.removed)
		m.lists.Remove(func(t int64) bool {
			_, found := slices.BinarySearch(m.removed, t)
			return found
		}, changed)
	}
	for _, c := range m.pushed {
		m.lists.Push(c.Start, c.N, changed)
	}
	m.lists.Finish(changed)
	for _, name := range names {
		write(name, m.lists[name])
	}
	m.pushed, m.removed = m.pushed[:0], m.removed[:0]
}
