package simtest

import (
	"time"

	"twotier.dev/twotier/internal/embedded"
)

// losesData makes Redis lose everything, or go back to its state a moment ago, like a replica that
// lagged.
func (w *world) losesData() func() {
	lag := w.upTo(300 * time.Millisecond)
	if w.rnd.IntN(2) == 0 {
		return func() {
			w.say("Redis loses all")
			w.forgets((*embedded.Store).Flush, false)
		}
	}
	return func() {
		w.atomic.Lock()
		image := w.redis.Image()
		w.atomic.Unlock()
		time.Sleep(lag)
		w.say("Redis goes back by %v", lag)
		w.forgets(func(s *embedded.Store) { s.Rewind(image) }, w.plan.hotRate > 0)
	}
}

// forgets makes Redis lose data. What no decider of a key has in memory is written off. So is
// everything, if several nodes count a key and Redis goes back: some may continue from there before
// the one that knows more hears of the loss. If Redis loses data again before all have restored
// what they knew, counts made in between are taken for part of that (see package redisstore).
func (w *world) forgets(how func(*embedded.Store), all bool) {
	again := w.lostSince(time.Now().Add(-w.plan.stale()))
	w.atomic.Lock()
	defer w.atomic.Unlock()
	w.lossy = append(w.lossy, time.Now())
	known, pending, by := map[string]int64{}, map[string]int64{}, map[string]int{}
	for _, p := range w.living() {
		p.counter.Synced(func(_, key []byte, n int64) {
			known[string(key)] = max(known[string(key)], n)
			by[string(key)]++
		})
		p.counter.Unflushed(func(_, key []byte, n int64) { pending[string(key)] += max(0, n) })
	}
	had := map[string]int64{}
	for _, key := range w.ledger.names() {
		had[key] = w.stored(key)
	}
	how(w.redis)
	for key, n := range had {
		// A node that has once stood in for the decider may restore the key, too.
		others := by[key] > 1 || w.plan.restoresOthers()
		left := w.stored(key)
		if !all && !(again && others) && w.plan.kind != ruins {
			left = max(left, known[key])
		}
		w.ledger.lose(key, max(0, n-left))
		w.ledger.repeat(key, max(0, w.stored(key)-n)) // the key had been reset
		if others {
			w.ledger.repeat(key, pending[key])
		}
	}
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
