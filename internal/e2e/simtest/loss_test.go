package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
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

// journal records the answers of clients and the changes in Redis, to be printed when a schedule
// fails.
type journal struct {
	mu    sync.Mutex
	lines []entry
}

// entry is formatted only when the journal is read.
type entry struct {
	at     time.Time
	format string
	args   []any
}

func (e *entry) String() string {
	return e.at.Format("05.000000 ") + fmt.Sprintf(e.format, e.args...)
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, a := range args {
		if b, ok := a.([]byte); ok {
			args[i] = string(b) // copied, because the caller reuses it
		}
	}
	j.lines = append(j.lines, entry{time.Now(), format, args})
}

// about returns the last lines about a key.
func (j *journal) about(key string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for i := range j.lines {
		line := j.lines[i].String()
		if strings.Contains(line, " "+key+" ") || strings.Contains(line, "---") {
			found = append(found, line)
		}
	}
	return strings.Join(found[max(0, len(found)-5000):], "\n")
}

// noted is the simulated Redis, with a journal.
type noted struct {
	*embedded.Store
	w *world
}

// Exchange implements syncer.Store.
func (s noted) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		s.w.atomic.Lock()
		if r.Seq == 0 && !r.Republish { // a round that only reads
			s.Store.Exchange(ctx, []*syncer.Round{r})
		} else {
			s.write(ctx, r)
		}
		s.w.sources.note(r)
		s.w.atomic.Unlock()
	}
}

// sources record the last writer of each key, and when another writer last read it after that.
type sources struct {
	writer map[string]string
	read   map[string]time.Time
}

// note records the counts and reads of a round. A round that changed nothing, because it was
// repeated or Redis had lost data, is recorded like any other.
func (s *sources) note(r *syncer.Round) {
	if s.writer == nil {
		s.writer, s.read = map[string]string{}, map[string]time.Time{}
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		key := string(k.Key)
		if by := s.writer[key]; k.Load && by != "" && by != r.Writer {
			s.read[key] = time.Now()
		}
		if len(k.Adds) > 0 {
			s.writer[key] = r.Writer
		}
	}
}

// write applies a round that changes something, and records the changes. Nothing else happens
// meanwhile.
func (s noted) write(ctx context.Context, r *syncer.Round) {
	before := make([]int64, len(r.Keys))
	for i := range r.Keys {
		before[i] = s.w.stored(string(r.Keys[i].Key))
	}
	s.Store.Exchange(ctx, []*syncer.Round{r})
	for i := range r.Keys {
		key, delta := string(r.Keys[i].Key), sumOf(r.Keys[i].Adds)
		if after := s.w.stored(key); delta != 0 || after != before[i] {
			s.w.journal.note("redis: %s %+d (now %d, was %d) from %s seq %d acked %d, lost %v, "+
				"republish %v",
				key, delta, after, before[i], r.Writer, r.Seq, r.Acked, r.Lost, r.Republish)
		}
	}
}
