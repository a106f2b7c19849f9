package loans

import "bytes"

// Reservations holds the reserved events of a partition's keys. They count as used in decisions,
// but are neither visible to reads nor in the store.
type Reservations []reserved

// reserved is one key's part of a reservation.
type reserved struct {
	id      string
	ns, key []byte
	n       int64
}

// Add reserves n events of a key under an id. It keeps the names.
func (r *Reservations) Add(id string, ns, key []byte, n int64) {
	*r = append(*r, reserved{id, ns, key, n})
}

// ReservedEvents returns the number of reserved events of a key.
func (r Reservations) ReservedEvents(ns, key []byte) (n int64) {
	for i := range r {
		if bytes.Equal(r[i].key, key) && bytes.Equal(r[i].ns, ns) {
			n += r[i].n
		}
	}
	return n
}

// Remove removes a reservation. It reports whether there was one.
func (r *Reservations) Remove(id string) bool {
	kept := (*r)[:0]
	for _, h := range *r {
		if h.id != id {
			kept = append(kept, h)
		}
	}
	removed := len(*r) - len(kept)
	clear((*r)[len(kept):])
	*r = kept
	return removed > 0
}
