package simtest

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/simnet"
)

// TestTableStays causes the everyday faults of a healthy cluster: a node that receives nothing from
// another one for which the third vouches, calls that are cut while gossip passes, and the loss of
// up to three in ten packets. None of these changes the table of owners.
func TestTableStays(t *testing.T) {
	for name, fault := range map[string]func(w *world, a, b *proc){
		"one way": func(w *world, a, b *proc) { w.net.Cut(a.ip, b.ip, simnet.All) },
		"calls": func(w *world, a, b *proc) {
			w.net.Cut(a.ip, b.ip, simnet.Calls)
			w.net.Cut(b.ip, a.ip, simnet.Calls)
		},
		"loss of packets": func(w *world, _, _ *proc) {
			w.net.SetWeather(simnet.Weather{Delay: time.Millisecond, PacketLoss: 300})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calm(t)
				time.Sleep(5 * time.Second)
				before := w.changes()
				list := w.alive()
				fault(w, list[0], list[1])
				time.Sleep(30 * time.Second)
				for id, changes := range w.changes() {
					if changes != before[id] {
						t.Errorf("node %s changed its table %d times", id, changes-before[id])
					}
				}
				w.heal()
				w.shutDown()
			})
		})
	}
}

// changes returns how often each node's table has changed.
func (w *world) changes() map[string]int64 {
	all := map[string]int64{}
	for _, p := range w.alive() {
		all[p.id] = p.node.Stats().TablesTotal
	}
	return all
}
