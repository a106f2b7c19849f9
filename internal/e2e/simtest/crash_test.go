package simtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/simnet"
)

// killUnknown starts a process about which another one receives no gossip, and kills it once it
// owns partitions. Clients ask the uninformed process meanwhile: the live owner in its view
// redirects it to the dead one.
func (w *world) killUnknown() {
	list := w.alive()
	p := list[w.rnd.IntN(len(list))]
	end := w.sight.unsaid(p.ip)
	w.say("%s hears no gossip", p.id)
	w.holds.divide(w)
	for _, i := range w.freeHosts() {
		w.net.Cut(ip(i), p.ip, simnet.Gossip)
	}
	for _, o := range list {
		w.net.Cut(o.ip, p.ip, simnet.Gossip)
	}
	var running sync.WaitGroup
	w.keepAsking(&running, p, 3*time.Second)
	before := w.alive()
	w.join()
	w.rest(1500)
	for _, o := range w.alive() {
		if !slices.Contains(before, o) {
			w.say("%s is killed", o.id)
			o.kill()
		}
	}
	w.rest(1000)
	w.net.Heal()
	end()
	running.Wait()
	w.rest(6000)
}

// keepAsking makes clients count keys at a process for some time, without waiting for its answers.
func (w *world) keepAsking(running *sync.WaitGroup, p *proc, length time.Duration) {
	for i := range 6 {
		c := &client{w: w, number: 220 + i, rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 6))}
		running.Go(func() {
			for by := time.Now().Add(length); time.Now().Before(by); {
				one := &client{w: w, number: c.number,
					rnd: rand.New(rand.NewPCG(c.rnd.Uint64(), 8))}
				running.Go(func() { one.do(p, one.once()) })
				time.Sleep(c.upTo(30 * time.Millisecond))
			}
		})
	}
}

// once counts a key that is never used again.
func (c *client) once() twotier.Op {
	return twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{
		{Key: fmt.Append(nil, "once", c.w.once.Add(1)), N: 1}}}
}

// freeHosts returns the numbers of the hosts without a process.
func (w *world) freeHosts() (list []int) {
	for i := 1; i <= hosts; i++ {
		if w.at(i) == nil {
			list = append(list, i)
		}
	}
	return list
}

// hurry makes hasty clients send batches, in which acquires that must be loaded from a slow Redis
// come before adds. Operations carried out in place of an owner must meet the deadline.
func (w *world) hurry() {
	for _, p := range w.alive() {
		defer p.takes.slow(400 * time.Millisecond)()
	}
	w.spent++
	var running sync.WaitGroup
	for i := range 16 {
		c := &client{w: w, number: 230 + i, hasty: true,
			rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 7))}
		var ops []twotier.Op
		for k := range 12 {
			op := c.once()
			if k < 4 {
				key := fmt.Sprintf("spent%d.%d", w.spent, 4*i+k)
				op = twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
					{Key: []byte(key), N: 1, Limits: limitsOf(key)}}}
			}
			ops = append(ops, op)
		}
		running.Go(func() {
			time.Sleep(c.upTo(time.Second))
			if p := w.pick(c.rnd); p != nil {
				c.do(p, ops...)
			}
		})
	}
	running.Wait()
}
