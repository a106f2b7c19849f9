package simtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
)

// cast holds the processes and hosts that faults can happen to. Each gets at most one fault at a
// time, and enough processes stay unaffected to form a cluster.
type cast struct {
	w     *world
	procs []*proc // in random order
	hosts []int   // free ones
	stay  int     // how many of procs may still end
	cut   bool    // the network has a fault already
}

// trouble picks its victim and returns the fault, or nil if there is no victim left.
type trouble func(c *cast) func()

var (
	comingAndGoing = []trouble{(*cast).joins, (*cast).leaves, (*cast).joins, (*cast).leaves,
		(*cast).hasATwin}
	turning = []trouble{(*cast).joins, (*cast).leaves, (*cast).losesRedis, (*cast).switches,
		(*cast).lags}
	anything = []trouble{
		(*cast).joins, (*cast).leaves, (*cast).isKilled, (*cast).isCutOff, (*cast).slowsDown,
		(*cast).losesRedis, (*cast).switches,
		(*cast).sleeps, (*cast).hasAWrongTime, (*cast).hasItsClockSet, (*cast).hasATwin,
	}
)

// several causes that many faults, or one more, at about the same time.
func (w *world) several(some int, list []trouble) {
	c := w.cast()
	var running sync.WaitGroup
	for range some + w.rnd.IntN(2) {
		happens := list[w.rnd.IntN(len(list))](c)
		if happens == nil {
			continue
		}
		wait := w.upTo(800 * time.Millisecond)
		running.Go(func() { time.Sleep(wait); happens() })
	}
	running.Wait()
}

func (w *world) cast() *cast {
	c := &cast{w: w, procs: w.alive()}
	c.stay = len(c.procs) - 2
	w.rnd.Shuffle(len(c.procs), func(i, j int) { c.procs[i], c.procs[j] = c.procs[j], c.procs[i] })
	for i := 1; i <= hosts; i++ {
		if w.at(i) == nil {
			c.hosts = append(c.hosts, i)
		}
	}
	return c
}

// next returns a process without a fault, or nil if there is none. With ends, the process won't be
// alive afterwards.
func (c *cast) next(ends bool) *proc {
	if len(c.procs) == 0 || ends && c.stay <= 0 {
		return nil
	}
	if ends {
		c.stay--
	}
	p := c.procs[0]
	c.procs = c.procs[1:]
	return p
}

func (c *cast) joins() func() {
	if len(c.hosts) == 0 {
		return nil
	}
	i := c.hosts[0]
	c.hosts = c.hosts[1:]
	return func() { c.w.joinAt(i) }
}

func (c *cast) leaves() func() {
	p := c.next(true)
	if p == nil {
		return nil
	}
	return func() { c.w.leaves(p) }
}

func (c *cast) isKilled() func() {
	p := c.next(true)
	if p == nil {
		return nil
	}
	return func() {
		c.w.say("%s is killed", p.id)
		p.kill()
	}
}

// isCutOff cuts one node off from all others, or one direction between two nodes, for some kinds of
// messages.
func (c *cast) isCutOff() func() {
	if c.cut || len(c.procs) < 2 {
		return nil
	}
	c.cut = true
	w, a, b := c.w, c.procs[0], c.procs[1]
	kinds, all, length := simnet.Kinds(1+w.rnd.IntN(3)), w.rnd.IntN(2) == 0, w.upTo(12*time.Second)
	return func() {
		w.say("%s no longer reaches %s, kind %d; cut off from all: %v", a.id, b.id, kinds, all)
		w.net.Cut(a.ip, b.ip, kinds)
		away := []string{a.ip, b.ip}
		if all {
			away = away[:1]
		}
		defer w.sight.unreached(away...)()
		for _, o := range w.alive() {
			if all && o != a {
				w.net.Cut(a.ip, o.ip, kinds)
				w.net.Cut(o.ip, a.ip, kinds)
			}
		}
		time.Sleep(length)
		w.net.Heal()
		w.say("the network heals")
	}
}

// slowsDown delays all messages that one node sends to others, or that they send to it.
func (c *cast) slowsDown() func() {
	if c.cut || len(c.procs) < 2 {
		return nil
	}
	c.cut = true
	w, a, others := c.w, c.procs[0], c.procs[1:]
	by, length, out := w.upTo(3*time.Second), w.upTo(12*time.Second), w.rnd.IntN(2) == 0
	return func() {
		w.say("%s is %v late, what it sends: %v", a.id, by, out)
		defer w.sight.unreached(a.ip)()
		for _, o := range others {
			if out {
				w.net.Slow(a.ip, o.ip, by)
			} else {
				w.net.Slow(o.ip, a.ip, by)
			}
		}
		time.Sleep(length)
		w.net.Heal()
		w.say("%s is as fast as ever", a.id)
	}
}

// lags delays messages to one node, but by less than half of the time in which a ping must be
// answered: on a new connection a ping takes two round trips.
func (c *cast) lags() func() {
	if c.cut || len(c.procs) < 2 {
		return nil
	}
	c.cut = true
	w, to, others := c.w, c.procs[0], c.procs[1:]
	by, length := w.upTo(200*time.Millisecond), w.upTo(5*time.Second)
	return func() {
		w.say("what is sent to %s takes %v", to.id, by)
		for _, o := range others {
			w.net.Slow(o.ip, to.ip, by)
		}
		time.Sleep(length)
		w.net.Heal()
		w.say("%s is reached as fast as ever", to.id)
	}
}

// losesRedis takes Redis away from some nodes, or makes it read-only for them.
func (c *cast) losesRedis() func() {
	w, length, set, how := c.w, c.w.upTo(8*time.Second), (*faultstore.Store).SetDown, "loses Redis"
	if w.rnd.IntN(3) == 0 {
		set, how = (*faultstore.Store).SetFull, "finds Redis full"
	}
	var down []*proc
	for _, p := range w.alive() {
		if w.rnd.IntN(2) == 0 {
			down = append(down, p)
		}
	}
	return func() { w.takeRedis(down, set, how, length) }
}

// takeRedis takes Redis away from processes for some time, or some of its functions.
func (w *world) takeRedis(from []*proc, set func(*faultstore.Store, bool), how string,
	length time.Duration) {
	defer w.withoutRedis(time.Now())
	for _, p := range from {
		w.say("%s %s", p.id, how)
		set(p.store, true)
	}
	time.Sleep(length)
	for _, p := range from {
		set(p.store, p.dead.Load())
	}
	w.say("Redis is back")
}

func (c *cast) switches() func() {
	if len(c.procs) == 0 {
		return nil
	}
	p := c.procs[c.w.rnd.IntN(len(c.procs))]
	return func() { c.w.switchAt(p) }
}

// sleeps suspends a node. It may wake up after others have taken over its partitions.
func (c *cast) sleeps() func() {
	p := c.next(false)
	if p == nil {
		return nil
	}
	length := c.w.upTo(15 * time.Second)
	return func() { p.sleep(length) }
}

// sleep suspends a process.
func (p *proc) sleep(length time.Duration) {
	p.w.say("%s is suspended", p.id)
	defer p.w.sight.paused(p.ip)()
	p.asleep.Store(true)
	p.w.net.Freeze(p.ip)
	p.counter.EachUnflushed(p.w.withhold)
	time.Sleep(length)
	wait := p.w.askUponReturn(p)
	p.w.net.Thaw(p.ip)
	p.asleep.Store(false)
	p.w.say("%s goes on", p.id)
	wait()
}

// askUponReturn makes requests wait at a suspended process. When it goes on, their limits are used
// up by the admissions so far, apart from counts that suspended processes had yet to flush: none is
// admitted. This holds only if nothing else happens.
func (w *world) askUponReturn(p *proc) (wait func()) {
	var asking sync.WaitGroup
	for i := range limitedKeys {
		key := fmt.Sprint("limited", i)
		a := w.ledger.copy(key)
		most := a.admitted() - a.withheld
		if w.plan.kind != stalls || most < 1 {
			continue
		}
		asking.Go(func() {
			_ = w.net.Awake(context.Background(), p.ip)
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			op := twotier.Op{Kind: twotier.Acquire, DryRun: true, Checks: []twotier.Check{{
				Key: []byte(key), N: 1, Limits: []twotier.Limit{{Window: dayMS, Max: most}}}}}
			var res twotier.Result
			err := p.node.Do(ctx, &op, &res)
			if err == nil && res.Allowed && !res.Degraded {
				w.t.Errorf("%s: node %s, which stood still, admits (%s) what was used up: %+v", key,
					p.id, res.Source, res.Checks)
				w.t.Logf("%s:\n%s", key, w.journal.about(key))
			}
		})
	}
	return asking.Wait
}

// wrongTime is the maximum error of the time that a node reads from Redis.
const wrongTime = 1500 * time.Millisecond

// hasAWrongTime makes a node read a wrong time from Redis for a while.
func (c *cast) hasAWrongTime() func() {
	p := c.next(false)
	if p == nil {
		return nil
	}
	w, by, length := c.w, c.w.upTo(2*wrongTime)-wrongTime, c.w.upTo(15*time.Second)
	return func() {
		w.say("%s hears a time that is %v off", p.id, by)
		p.ahead.Store(int64(by))
		time.Sleep(length)
		p.ahead.Store(0)
	}
}

// hasItsClockSet sets the clock of a node's host forward or back by up to an hour.
func (c *cast) hasItsClockSet() func() {
	p := c.next(false)
	if p == nil {
		return nil
	}
	w, by := c.w, c.w.upTo(2*time.Hour)-time.Hour
	return func() {
		w.say("the clock of %s is set by %v", p.id, by)
		p.step.Store(int64(by))
	}
}

// beside is how long two processes run under one ID, until an operator stops the older one.
const beside = 5 * time.Second

// hasATwin starts another process under the ID of one that is running and stays. The twin is
// refused, unless a split hides the older one from it: then the younger counts.
func (c *cast) hasATwin() func() {
	if len(c.hosts) == 0 || len(c.procs) == 0 {
		return nil
	}
	p, i := c.next(false), c.hosts[0]
	c.hosts = c.hosts[1:]
	return func() {
		c.w.say("another %s starts", p.id)
		switch _, err := c.w.startAs(i, p.id); {
		case err == nil && c.w.plan.kind.wild():
			c.w.say("two processes are %s", p.id)
			defer c.w.sight.unreached(p.ip, ip(i))()
			time.Sleep(beside)
			c.w.leaves(p)
		case !errors.Is(err, ring.ErrRefused):
			c.w.t.Errorf("%s: another was not refused: %v", p.id, err)
		}
	}
}

// joinAt starts a process on a host.
func (w *world) joinAt(i int) {
	w.say("n%d joins", i)
	if _, err := w.start(i); err != nil {
		w.say("n%d could not join: %v", i, err)
		if !w.plan.kind.is(splits, everything, delays, stalls) && !w.plan.kind.wild() {
			w.t.Errorf("n%d joins: %v", i, err)
		}
	}
}

// leaves stops a process. If Redis accepts all writes, nothing must be written off.
func (w *world) leaves(p *proc) {
	w.say("%s leaves", p.id)
	if err := p.leave(); err != nil {
		if w.plan.kind.is(graceful, together, moves) && w.plan.mix.RequestLost == 0 {
			w.t.Errorf("%s leaves: %v", p.id, err)
		}
		w.bury(p)
	}
}

// switchInVain changes the mode through a node after Redis has gone for all running nodes, so that
// their counts are only in their memory. Two nodes that do have Redis join meanwhile, or just
// before.
func (w *world) switchInVain() {
	c, list := w.cast(), w.alive()
	var running sync.WaitGroup
	length := 2*time.Second + w.upTo(6*time.Second)
	running.Go(func() { w.takeRedis(list, (*faultstore.Store).SetDown, "loses Redis", length) })
	wait := w.flurry(durably)
	defer wait()
	w.rest(2000)
	events := []trouble{(*cast).switches, (*cast).joins, (*cast).joins}
	if w.rnd.IntN(2) == 0 {
		slices.Reverse(events)
	}
	for i, event := range events {
		if i == 1 {
			w.rest(500)
		}
		if happens := event(c); happens != nil {
			running.Go(happens)
		}
	}
	running.Wait()
}

// switchAt changes the mode of the cluster through one node.
func (w *world) switchAt(p *proc) {
	mode := cluster.Redis
	if p.node.Mode() == mode {
		mode = cluster.TwoTier
	}
	w.say("%s switches to %s", p.id, mode)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.node.SetMode(ctx, mode); err != nil {
		w.say("it stays: %v", err)
	}
}
