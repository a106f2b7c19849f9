package webhook

import (
	"hash/maphash"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
)

// generation is how many crossings a map of recent holds. One takes about 40 bytes.
const generation = 32768

// recent remembers crossings for some time: in two maps, of which the older one is forgotten as a
// whole when the newer one is full.
type recent struct {
	seed         maphash.Seed
	newer, older map[uint64]time.Duration // until when the crossing is remembered
}

func newRecent() *recent {
	return &recent{seed: maphash.MakeSeed(), newer: map[uint64]time.Duration{}}
}

// identity is the identity of a crossing. A limit or a level that has changed is crossed anew.
type identity struct {
	key                uint64 // its hash
	namespace, rule    string // names; a rule without a name is the limit of a descriptor
	window, max, level int64
	period             *twotier.Period
	distinct           bool
}

// id returns a hash of a crossing's identity.
func (r *recent) id(d *decisions.Decision, l *twotier.LimitResult) uint64 {
	return maphash.Comparable(r.seed, identity{maphash.Bytes(r.seed, d.Key), d.Rule.Space(),
		d.Rule.Name, l.Window, l.Max, d.Rule.Warn, l.Period, d.Distinct})
}

// has reports whether a crossing is remembered at a time.
func (r *recent) has(id uint64, now time.Duration) bool {
	return now < max(r.newer[id], r.older[id])
}

// add remembers a crossing until a time.
func (r *recent) add(id uint64, until time.Duration) {
	if len(r.newer) >= generation {
		r.newer, r.older = make(map[uint64]time.Duration, generation), r.newer
	}
	r.newer[id] = until
}
