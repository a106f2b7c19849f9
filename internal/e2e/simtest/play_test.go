package simtest

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/testing/simnet"
)

// play causes faults for as long as the plan requires.
func (w *world) play() {
	w.rest(2000)
	for end := time.Now().Add(w.plan.length); time.Now().Before(end); {
		again := w.spend()
		w.act()
		again()
		w.rest(4000)
	}
}

// rest waits for a random time of up to that many milliseconds.
func (w *world) rest(ms int) { time.Sleep(time.Duration(w.rnd.IntN(ms)) * time.Millisecond) }

// upTo returns a random duration.
func (w *world) upTo(most time.Duration) time.Duration {
	return time.Duration(w.rnd.Int64N(int64(most)))
}

// act causes one event that belongs to the kind of the schedule.
func (w *world) act() {
	k := w.plan.kind
	if k == everything {
		k = kind(w.rnd.IntN(int(everything)))
	}
	switch k {
	case graceful:
		w.joinOrLeave()
	case crashes:
		w.crash()
	case splits:
		w.cut()
	case outages:
		w.outage()
	case modes:
		w.switchMode()
	case losses:
		w.lose()
	case together:
		w.several(2, comingAndGoing)
	case handloss:
		w.losing(comingAndGoing)
	case chaos:
		w.several(2, anything)
	case ruins:
		w.losing(anything)
	case moves:
		w.move()
	case restarts:
		w.restart()
	case delays:
		w.delay()
	case stalls:
		w.stall()
	case replacements:
		w.replaceNode()
	}
}

// losing causes several faults while Redis loses data.
func (w *world) losing(list []trouble) {
	wait := w.upTo(1500 * time.Millisecond)
	var running sync.WaitGroup
	loss := w.losesData()
	running.Go(func() { time.Sleep(wait); loss() })
	w.several(2, list)
	running.Wait()
}

// lose makes Redis lose data, and now and then once more soon after.
func (w *world) lose() {
	for {
		w.losesData()()
		if w.rnd.IntN(4) > 0 {
			return
		}
		w.rest(300)
	}
}

// joinOrLeave starts a process, stops one, or replaces one by another of the same name.
func (w *world) joinOrLeave() {
	list := w.alive()
	if len(list) <= 2 || len(list) < 6 && w.rnd.IntN(2) == 0 {
		w.join()
		return
	}
	w.leavesAmidGroups(list[w.rnd.IntN(len(list))])
}

// replaceNode stops a process and starts it again with the same options at once: in half of the
// cases the one at the address that all others join at.
func (w *world) replaceNode() {
	host := 1
	if w.rnd.IntN(2) == 0 {
		host += w.rnd.IntN(w.plan.nodes)
	}
	w.leavesAmidGroups(w.at(host))
	w.joinAt(host)
}

// leavesAmidGroups stops a process while clients count groups.
func (w *world) leavesAmidGroups(p *proc) {
	wait := w.burst()
	w.leaves(p)
	wait()
}

// bury writes off the unflushed counts of a stopped process.
func (w *world) bury(p *proc) {
	p.counter.EachUnflushed(w.writeOff)
}

// join starts a process on a free host.
func (w *world) join() {
	for i := 1; i <= hosts; i++ {
		if w.at(i) == nil {
			w.joinAt(i)
			return
		}
	}
}

// crash kills a process, and restarts it soon or late.
func (w *world) crash() {
	list := w.alive()
	if len(list) > 1 && len(list) < hosts && w.rnd.IntN(4) == 0 {
		w.killUnknown()
		return
	}
	if len(list) > 2 {
		p := list[w.rnd.IntN(len(list))]
		wait := w.burst()
		w.say("%s is killed", p.id)
		p.kill()
		w.hurry()
		wait()
		w.rest(12_000)
	}
	if w.rnd.IntN(3) > 0 {
		w.join()
	}
}

// cut cuts the network for a while: in halves, one way, for one kind of message, or around one
// node.
func (w *world) cut() {
	list := w.alive()
	var a, b, away []string
	for _, p := range list {
		if w.rnd.IntN(2) == 0 {
			a = append(a, p.ip)
		} else {
			b = append(b, p.ip)
		}
	}
	switch n := w.rnd.IntN(4); {
	case n == 0 && len(list) > 1:
		w.say("%s no longer reaches %s", list[0].id, list[1].id)
		w.net.Cut(list[0].ip, list[1].ip, simnet.All)
		away = []string{list[0].ip, list[1].ip}
	case n == 1 && len(list) > 0:
		k := simnet.Gossip
		if w.rnd.IntN(2) == 0 {
			k = simnet.Calls
		}
		w.say("%s is cut off, kind %d", list[0].id, k)
		away = []string{list[0].ip}
		for _, p := range list[1:] {
			w.net.Cut(list[0].ip, p.ip, k)
			w.net.Cut(p.ip, list[0].ip, k)
		}
	default:
		w.say("%v and %v are split", a, b)
		w.net.Split(a, b)
		if away = a; len(b) < len(a) {
			away = b
		}
	}
	defer w.sight.unreached(away...)()
	w.rest(20_000)
	w.say("the network heals")
	w.net.Heal()
}

// outage takes Redis away from some nodes or all.
func (w *world) outage() {
	list := w.alive()
	all := w.rnd.IntN(2) == 0
	defer w.withoutRedis(time.Now())
	for _, p := range list {
		if all || w.rnd.IntN(2) == 0 {
			w.say("%s loses Redis", p.id)
			p.store.SetDown(true)
		}
	}
	w.rest(10_000)
	for _, p := range list {
		p.store.SetDown(false)
	}
	w.say("Redis is back")
}

// span is a period of time.
type span struct{ from, to time.Time }

// withoutRedis records that some nodes could not write to Redis from then until now.
func (w *world) withoutRedis(from time.Time) {
	w.atomic.Lock()
	defer w.atomic.Unlock()
	w.outages = append(w.outages, span{from, time.Now()})
}

// switchMode changes the mode through one node, alone or together with other faults.
func (w *world) switchMode() {
	switch w.rnd.IntN(8) {
	case 0:
		w.joinOrLeave()
	case 1, 2:
		w.several(3, turning)
	case 3:
		w.switchInVain()
	case 4:
		w.switchAmidHandovers()
	case 5:
		w.contest()
	default:
		// Now and then two administrators make the same change.
		var changing sync.WaitGroup
		if lags := w.cast().lags(); lags != nil && w.rnd.IntN(2) == 0 {
			changing.Go(lags)
		}
		for range 1 + w.rnd.IntN(2) {
			if p := w.pick(w.rnd); p != nil {
				changing.Go(func() { w.switchAt(p) })
			}
			w.rest(20)
		}
		changing.Wait()
	}
}

// heal ends all faults and switches the cluster back to counting in memory.
func (w *world) heal() {
	w.say("all heals")
	w.healed.Store(true)
	w.net.Heal()
	w.net.SetWeather(simnet.Weather{Delay: time.Millisecond})
	for _, p := range w.alive() {
		p.store.SetDown(false)
		p.store.SetFull(false)
		p.ahead.Store(0)
		w.net.Thaw(p.ip)
	}
	w.until(patience, func() bool {
		for _, p := range w.alive() {
			if !w.hasAll(p) {
				return false
			}
		}
		return true
	})
	p := w.alive()[0]
	w.until(patience, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.node.SetMode(ctx, cluster.TwoTier); err != nil {
			return false
		}
		for _, o := range w.alive() {
			if o.node.Mode() != cluster.TwoTier {
				return false
			}
		}
		return true
	})
}

// shutDown stops one process, and then all others at the same time.
func (w *world) shutDown() {
	leave := func(p *proc) {
		if err := p.leave(); err != nil && !w.t.Failed() {
			w.t.Errorf("node %s leaves in the end: %v", p.id, err)
		}
	}
	leave(w.alive()[0])
	var leaving sync.WaitGroup
	for _, p := range w.alive() {
		leaving.Go(func() { leave(p) })
	}
	leaving.Wait()
	time.Sleep(2 * time.Minute) // the goroutines of memberlist end with their last probe
}
