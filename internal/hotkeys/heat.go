package hotkeys

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"twotier.dev/twotier"
)

const (
	// sampleEvery is the number of operations per sample.
	sampleEvery = 64
	// maxHeat bounds the keys tracked between two reviews.
	maxHeat = 1024
)

// detector samples operations on keys of other nodes.
type detector struct {
	seen atomic.Uint64

	mu   sync.Mutex
	keys map[string]*heat
}

// heat is the number of sampled operations on a key, scaled up, and the limits of the last one.
type heat struct {
	check  twotier.Check
	events int64
}

// sample samples one in sampleEvery of the operations, chosen at random: uniform batches may have
// the same key at every 64th place. foreign reports whether another node owns a key.
func (d *detector) sample(ops []twotier.Op, foreign func(*twotier.Check) bool) {
	k := uint64(len(ops))
	after := d.seen.Add(k)
	for range after/sampleEvery - (after-k)/sampleEvery {
		op := &ops[rand.IntN(len(ops))]
		for i := range op.Checks {
			if c := &op.Checks[i]; op.MayBorrow() && foreign(c) {
				d.add(op.Kind, c)
			}
		}
	}
}

func (d *detector) add(kind twotier.Kind, c *twotier.Check) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := string(c.AppendName(nil))
	h := d.keys[name]
	switch {
	case h == nil && len(d.keys) >= maxHeat:
		return
	case h == nil && d.keys == nil:
		d.keys = map[string]*heat{}
	}
	if h == nil {
		h = &heat{check: twotier.Check{NS: slices.Clone(c.NS), Key: slices.Clone(c.Key)}}
		d.keys[name] = h
	}
	h.events += sampleEvery
	if kind == twotier.Acquire {
		h.check.Limits = slices.Clone(c.Limits)
	}
}

// drain returns the approximate number of operations on each key since the last call.
func (d *detector) drain() map[string]*heat {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := d.keys
	d.keys = nil
	return keys
}
