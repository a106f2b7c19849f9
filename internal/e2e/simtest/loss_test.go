package simtest

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/must"
)

// losesData makes Redis lose everything, or go back to its state a moment ago, like a replica that
// lagged.
func (w *world) losesData() func() {
	lag := w.upTo(300 * time.Millisecond)
	if w.rnd.IntN(2) == 0 {
		return func() {
			w.say("Redis loses all")
			w.forgets(w.redis.Flush, time.Now(), false)
		}
	}
	return func() {
		goBack := w.remembers()
		time.Sleep(lag)
		w.say("Redis goes back by %v", lag)
		goBack()
	}
}

// remembers saves the present state of Redis and returns a function that restores it.
func (w *world) remembers() (goBack func()) {
	w.atomic.Lock()
	defer w.atomic.Unlock()
	image, at := w.redis.Image(), time.Now()
	return func() {
		w.forgets(func() { w.redis.Rewind(image) }, at, w.plan.hotRate > 0)
	}
}

// forgets makes Redis lose data; if it goes back in time, only data later than since. Counts that
// no decider of a key has in memory are written off. So is everything, if several nodes count a key
// and Redis goes back: some may continue from there before the node that knows more learns of the
// loss. If Redis loses data again before all have restored their counts, counts made in between are
// mistaken for part of those (see package redisstore).
func (w *world) forgets(how func(), since time.Time, all bool) {
	again := w.lostSince(time.Now().Add(-w.plan.stale()))
	w.atomic.Lock()
	defer w.atomic.Unlock()
	w.lossy = append(w.lossy, time.Now())
	known, pending, by := map[string]int64{}, map[string]int64{}, map[string]int{}
	living := w.living()
	for _, p := range living {
		p.counter.EachSynced(func(_, key []byte, n int64) {
			known[string(key)] = max(known[string(key)], n)
			by[string(key)]++
		})
		p.counter.EachUnflushed(func(_, key []byte, n int64) { pending[string(key)] += max(0, n) })
	}
	had, banned := map[string]int64{}, w.storedBans()
	for _, key := range w.ledger.names() {
		had[key] = w.stored(key)
	}
	values := w.storedValues()
	how()
	w.due.lose()
	if w.plan.kind != losses || all || again {
		w.holds.loseAll(w)
	}
	if w.plan.kind != losses { // where all that decide have everything in memory, and stay
		w.writeOffValuesLocked(values)
	}
	for name, left := range w.storedBans() {
		if !all && !again && w.plan.kind != ruins {
			left = max(left, known[name])
		}
		if left < banned[name] {
			w.bans.lose(name)
		}
	}
	for key, n := range had {
		// A node that has once stood in for the decider may restore the key, too.
		others := by[key] > 1 || w.plan.restoresOthers()
		left := w.stored(key)
		if !all && !(again && others) && w.plan.kind != ruins {
			left = max(left, known[key])
		}
		w.ledger.lose(key, max(0, n-left))
		w.ledger.reappear(key, n, w.stored(key), since)
		// A node that has just read the key may restore it, too, and is not among the others yet.
		// The allowance only applies where everything is lost, as documented in package redisstore.
		if others || time.Since(w.sources.read[key]) < w.plan.stale() && w.stored(key) == 0 {
			w.ledger.repeat(key, pending[key])
		}
	}
}

// TestARoundIsSentAgainBehindAnUndoneReset resets a key and counts it, in a round that gets no
// answer, before Redis goes back to its state before the reset. The earlier counts come back then,
// and the round is sent again on top of them.
func TestARoundIsSentAgainBehindAnUndoneReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t)
		w.plan.kind, w.plan.mix = losses, faultstore.Mix{ReplyLost: 1000}
		w.healed.Store(true)
		p, err := w.start(4) // the only one with faults, once they begin
		must.Succeed(t, err)
		w.settle(t)
		c := &client{w: w, rnd: rand.New(rand.NewPCG(1, 1))}
		key := w.keysOf(p, "k", 1)[0]
		for range 10 {
			c.do(p, *adding(key))
		}
		w.settle(t)
		goBack := w.remembers()
		must.Succeed(t, p.node.Reset(t.Context(), nil, []byte(key)))
		w.ledger.reset(key, time.Now(), 0, false)
		w.healed.Store(false)
		c.do(p, *adding(key))
		if !w.until(patience, func() bool { return w.stored(key) == 1 }) {
			t.Fatal("nothing arrives in Redis")
		}
		goBack()
		w.heal()
		w.settle(t)
		if n := w.stored(key); n != 11 {
			t.Errorf("Redis has %d, want what was counted before and after the reset", n)
		}
		w.check()
		w.shutDown()
	})
}

// living returns all processes that have not been killed and have not stopped.
func (w *world) living() (list []*proc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.all {
		if !p.dead.Load() {
			list = append(list, p)
		}
	}
	return list
}
