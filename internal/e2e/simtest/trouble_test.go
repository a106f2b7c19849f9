package simtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/simnet"
)

// mostSpent is how many keys are used up before an event, except if there are more partitions than
// usual.
const mostSpent = 24

// isSpent reports whether spend uses a key.
func isSpent(key string) bool { return strings.HasPrefix(key, "spent") }

// spend uses up keys of many partitions, some of them of several owners at once, shortly before an
// event, or during it. The next owner must know of that. During the event it acquires the keys
// again, and the returned function does so after it.
func (w *world) spend() (again func()) {
	w.spent++
	n, every := w.plan.partitions, w.plan.partitions > 2*mostSpent
	if !every {
		n = min(n, mostSpent)
	}
	c := &client{w: w, number: 200, rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 2))}
	var first, later []twotier.Op
	for i := 0; i < n; {
		op := twotier.Op{Kind: twotier.Acquire}
		if c.rnd.IntN(3) == 0 {
			op.Ack = twotier.AckStore
		}
		for range 1 + 2*c.rnd.IntN(2) {
			key := fmt.Appendf(nil, "spent%d.%d", w.spent, i)
			check := twotier.Check{Key: key, N: 1, Limits: limitsOf(string(key))}
			op.Checks = append(op.Checks, check)
			later = append(later, twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{check}})
			i++
		}
		first = append(first, op)
	}
	var asking sync.WaitGroup
	if w.rnd.IntN(2) == 0 {
		c.pass(first, time.Millisecond)
	} else { // the event comes in the middle, and another client wants the same keys
		rival := &client{w: w, number: 201, rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 4))}
		asking.Go(func() { c.pass(first, 400*time.Millisecond) })
		asking.Go(func() { rival.pass(later, 400*time.Millisecond) })
	}
	third := &client{w: w, number: 202, rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 5))}
	asking.Go(func() {
		for range 2 {
			time.Sleep(third.upTo(1500 * time.Millisecond))
			third.pass(later, time.Millisecond)
		}
	})
	return func() {
		asking.Wait()
		third.pass(later, time.Millisecond)
	}
}

// pass sends copies of operations to random nodes, in four parts, with pauses between them. Other
// clients send the same ones.
func (c *client) pass(ops []twotier.Op, pause time.Duration) {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].Checks = slices.Clone(ops[i].Checks)
	}
	for some := range slices.Chunk(ops, 1+len(ops)/4) {
		if p := c.w.pick(c.rnd); p != nil {
			c.do(p, some...)
		}
		time.Sleep(c.upTo(pause))
	}
}

// upTo returns a random duration.
func (c *client) upTo(most time.Duration) time.Duration {
	return time.Duration(c.rnd.Int64N(int64(most)))
}

// flurry makes clients acquire groups and count keys that are used once, and how changes some of
// these clients. The returned function waits for their answers.
func (w *world) flurry(how func(c *client)) (wait func()) {
	var running sync.WaitGroup
	for i := range 12 {
		c := &client{w: w, number: 120 + i, rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 3))}
		if i%3 > 0 {
			how(c)
		}
		running.Go(func() {
			for range 3 {
				p := w.pick(c.rnd)
				switch {
				case p == nil:
				case i%2 == 0:
					c.group(p)
				default:
					c.do(p, twotier.Op{Kind: twotier.Add, Ack: c.ack(), Checks: []twotier.Check{
						{Key: fmt.Append(nil, "once", w.once.Add(1)), N: 1}}})
				}
			}
		})
	}
	return running.Wait
}

func asEver(*client)    {}
func hastily(c *client) { c.hasty = true }

// durably makes a client wait until Redis has its counts, for longer than nodes wait.
func durably(c *client) { c.durable = true }

// move makes several processes come and go at once, now and then while the mode is changed in vain.
func (w *world) move() {
	switch w.rnd.IntN(6) {
	case 0:
		w.switchInVain()
		return
	case 1, 2:
		w.part()
		return
	}
	w.several(2, []trouble{(*cast).joins, (*cast).leaves, (*cast).joins, (*cast).leaves,
		(*cast).hasATwin, (*cast).lags})
}

// part makes a process leave while acquires of its keys wait for nodes that have no Redis.
func (w *world) part() {
	list := w.alive()
	if len(list) <= 2 {
		w.join()
		return
	}
	at := w.rnd.IntN(len(list))
	p, down := list[at], []*proc{list[(at+1)%len(list)]}
	if w.rnd.IntN(2) == 0 {
		down = list
	}
	var running sync.WaitGroup
	length := 2*time.Second + w.upTo(7*time.Second)
	running.Go(func() { w.takeRedis(down, (*faultstore.Store).SetDown, "loses Redis", length) })
	w.rest(300)
	wait := w.flurry(durably)
	w.rest(300)
	w.leaves(p)
	wait()
	running.Wait()
}

// restart kills a process whose answers are late, and immediately starts another one at its
// address.
func (w *world) restart() {
	list := w.alive()
	if len(list) <= 2 {
		w.join()
		return
	}
	p := list[w.rnd.IntN(len(list))]
	end := w.sight.unreached(p.ip)
	if by := w.upTo(1500 * time.Millisecond); w.rnd.IntN(4) > 0 {
		w.say("%s answers %v late", p.id, by)
		for _, o := range list {
			w.net.Slow(p.ip, o.ip, by)
		}
	}
	wait := w.flurry(asEver)
	w.rest(700)
	w.say("%s is killed", p.id)
	p.kill()
	for i := range hosts {
		if ip(i+1) == p.ip {
			w.joinAt(i + 1)
		}
	}
	w.net.Heal()
	wait()
	end()
	w.rest(8000)
}

// stall suspends processes for a while in the middle of acquires.
func (w *world) stall() {
	c := w.cast()
	var running sync.WaitGroup
	for range 1 + w.rnd.IntN(2) {
		if p := c.next(true); p != nil {
			wait, length := w.burst(), time.Second+w.upTo(39*time.Second)
			running.Go(func() { p.sleep(length); wait() })
		}
	}
	w.rest(6000)
	w.flurry(asEver)()
	running.Wait()
	w.flurry(asEver)()
}

// delay makes messages between some nodes late, while hasty clients ask them. A node that receives
// all messages late may leave.
func (w *world) delay() {
	list := w.alive()
	var away []string
	all, to := w.rnd.IntN(2) == 0, w.rnd.IntN(len(list))
	for i := range 1 + max(w.rnd.IntN(3), len(list)-1) {
		a, b, by := list[w.rnd.IntN(len(list))], list[w.rnd.IntN(len(list))],
			w.upTo(1800*time.Millisecond)
		if all {
			a, b = list[i%len(list)], list[to]
		} else if i > 2 {
			break
		}
		if a != b {
			w.say("what %s sends to %s is %v late", a.id, b.id, by)
			w.net.Slow(a.ip, b.ip, by)
			away = append(away, a.ip, b.ip)
		}
	}
	defer w.sight.unreached(away...)()
	wait := w.flurry(hastily)
	w.rest(1500)
	switch n := w.rnd.IntN(3); {
	case n == 0 && all && len(list) > 2:
		w.leavesAmidGroups(list[to])
	case n == 0:
		w.joinOrLeave()
	}
	w.flurry(hastily)()
	wait()
	w.net.Heal()
	w.rest(3000)
}

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
