package simtest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultstore"
)

// contest changes the mode back and forth while clients compete for keys, each of which admits one
// of them. Redis is slow meanwhile, and now and then one node is: requests that begin before a
// change end after it.
func (w *world) contest() {
	most := w.upTo(800 * time.Millisecond)
	for _, p := range w.alive() {
		defer p.takes.slow(most)()
	}
	var running sync.WaitGroup
	defer running.Wait()
	if lags := w.cast().lags(); lags != nil && w.rnd.IntN(2) == 0 {
		running.Go(lags)
	}
	for range 2 + w.rnd.IntN(2) {
		w.compete(&running)
		w.rest(500)
		if p := w.pick(w.rnd); p != nil {
			w.switchAt(p)
		}
	}
}

// switchAmidHandovers changes the mode in vain while partitions are on their way to a process that
// joins: Redis is slow, so that a handover takes a while, and then becomes unreachable for all
// processes except the joining one, before it has the clients' latest acquires. The clients acquire
// the same keys once more after the change has failed.
func (w *world) switchAmidHandovers() {
	list := w.alive()
	if len(list) == hosts {
		w.switchInVain()
		return
	}
	most := 200*time.Millisecond + w.upTo(1200*time.Millisecond)
	for _, p := range list {
		defer p.takes.slow(most)()
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(w.join)
	w.rest(300)
	again := w.compete(&running)
	w.until(3*time.Second, func() bool { return list[0].seesOwners(len(list) + 1) })
	w.rest(400)
	length := 6*time.Second + w.upTo(2*time.Second)
	running.Go(func() { w.takeRedis(list, (*faultstore.Store).SetDown, "loses Redis", length) })
	w.switchAt(list[w.rnd.IntN(len(list))])
	again()
}

// seesOwners reports whether at least n members may own partitions in the view of a process.
func (p *proc) seesOwners(n int) bool {
	t := p.ring.Table()
	for i := range t.Len() {
		if m := t.Member(i); !m.Starting && !m.Draining {
			n--
		}
	}
	return n <= 0
}

// contested is how many keys clients compete for at a time, rivals how many clients want each.
const contested, rivals = 30, 4

// compete makes clients acquire new keys, alone or three at a time. The returned function makes
// other clients acquire the same keys.
func (w *world) compete(running *sync.WaitGroup) (again func()) {
	w.spent++
	ask := func(generation int) {
		for i := range contested {
			wait := w.upTo(500 * time.Millisecond)
			for k := range rivals {
				c := &client{w: w, number: 210 + k,
					rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), uint64(k)))}
				wait, op := wait+c.upTo(300*time.Millisecond), c.want(generation, i)
				running.Go(func() {
					time.Sleep(wait)
					if p := w.pick(c.rnd); p != nil {
						c.do(p, op)
					}
				})
			}
		}
	}
	generation := w.spent
	ask(generation)
	return func() { ask(generation) }
}

// want acquires one of the contested keys of a generation, or three.
func (c *client) want(generation, first int) twotier.Op {
	op := twotier.Op{Kind: twotier.Acquire, Ack: c.ack()}
	for i := range 1 + 2*c.rnd.IntN(2) {
		key := fmt.Sprintf("spent%d.%d", generation, (first+i)%contested)
		op.Checks = append(op.Checks,
			twotier.Check{Key: []byte(key), N: 1, Limits: limitsOf(key)})
	}
	return op
}
