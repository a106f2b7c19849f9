package simtest

import (
	"sync"
	"testing"
	"testing/synctest"

	"twotier.dev/twotier/internal/testing/must"
)

// TestWhoLeavesWithoutRedisHandsOverItsValues makes nodes leave at the same time while nobody has
// Redis: the owner of a key, and maybe the next one. The others count the values that the owner had
// acknowledged, and write them once they can.
func TestWhoLeavesWithoutRedisHandsOverItsValues(t *testing.T) {
	for leavers := range 2 {
		synctest.Test(t, func(t *testing.T) {
			w := calmWith(t, func(p *plan) { p.values = true })
			defer w.shutDown()
			all := w.alive()
			key := w.keysOf(all[0], "k", 1)[0]
			for _, p := range all {
				p.store.SetDown(true)
			}
			names := [][]byte{[]byte("a"), []byte("b")}
			must.Succeed(t, all[0].distinct(newValueOp(key, names, nil)))
			var leaving sync.WaitGroup
			for _, p := range all[:1+leavers] {
				leaving.Go(func() {
					if err := p.leave(); err != nil {
						t.Errorf("%s leaves: %v", p.id, err)
					}
					w.bury(p)
				})
			}
			leaving.Wait()
			for _, p := range w.alive() {
				query := newValueOp(key, nil, nil, dayMS)
				if p.distinct(query) != nil || query.counts()[0].Count != 2 {
					t.Errorf("%s counts %+v %v, want 2", p.id, query.res, query.err)
				}
				p.store.SetDown(false)
			}
			w.settle(t)
			w.atomic.Lock()
			defer w.atomic.Unlock()
			if n := w.valuesOf(key).Len(); n != 2 {
				t.Errorf("Redis has %d values, want 2", n)
			}
		})
	}
}
