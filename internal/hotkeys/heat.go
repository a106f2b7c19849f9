package hotkeys

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"twotier.dev/twotier/internal/rpc"
)

const (
	// One operation in sampleEvery is sampled to find hot keys.
	sampleEvery = 64
	// maxHeat bounds the keys that are tracked between two reviews.
	maxHeat = 1024
)

// detector samples the operations that other nodes forward to this one.
type detector struct {
	served atomic.Uint64

	mu   sync.Mutex
	seen map[string]int64 // how often each key was among the samples
}

// note samples one in sampleEvery of the operations, chosen at random: batches that are all alike
// may have the same key at every 64th place. An operation that no lease would cover, because it has
// several keys or is in the past, makes no key hot.
func (d *detector) note(tasks []rpc.Task) {
	k := uint64(len(tasks))
	after := d.served.Add(k)
	for range after/sampleEvery - (after-k)/sampleEvery {
		op := &tasks[rand.IntN(len(tasks))].Op
		if op.TS != 0 || len(op.Checks) != 1 {
			continue
		}
		d.add(string(op.Checks[0].AppendName(nil)))
	}
}

func (d *detector) add(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[string]int64{}
	}
	if _, ok := d.seen[name]; ok || len(d.seen) < maxHeat {
		d.seen[name]++
	}
}

// take returns the approximate number of operations on each key since the last call.
func (d *detector) take() map[string]int64 {
	d.mu.Lock()
	ops := d.seen
	d.seen = nil
	d.mu.Unlock()
	for name := range ops {
		ops[name] *= sampleEvery
	}
	return ops
}

// Observe notes operations that another node has forwarded to this one.
func (t *Tracker) Observe(tasks []rpc.Task) {
	if t.opt.Rate > 0 {
		t.heat.note(tasks)
	}
}
