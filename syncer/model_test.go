package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestModel runs random operations on a counter over a store with random faults, and compares every
// answer with a list of all counts. Time is virtual, and the same seed gives the same operations
// and faults. The jitter of flushes is not part of it, so a failure may take some -count to come
// back.
func TestModel(t *testing.T) { eachSeed(t, *seedsFlag, runModel, failedOnce...) }

// world is one run: the counter, the store beneath it, and the true counts.
type world struct {
	t      *testing.T
	rnd    *rand.Rand
	dates  *rand.Rand // draws calendar windows
	plan   plan
	ladder *leaparray.Ladder
	now    func() int64
	jump   atomic.Int64
	store  *embedded.Store
	lists  *keyLists
	resets bool // since the last loss
	faults *faultstore.Store
	calm   atomic.Bool     // there are no faults any more
	image  *embedded.Image // that the store may go back to, or nil
	c, two *syncer.Counter // two is the rival, or nil
	keys   map[string]*truth
	valued map[string]*seen
	behind int   // operations refused because there was no room in time
	peak   int64 // the highest memory use seen
	starts int   // how many times the first counter was started
	buf    []byte
}

func runModel(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	w := &world{t: t, rnd: rnd, dates: rand.New(rand.NewPCG(seed, 3)), plan: newPlan(rnd),
		keys: map[string]*truth{}, valued: map[string]*seen{}}
	w.now = func() int64 { return t0 + time.Now().UnixMilli()%1_000_000_000 + w.jump.Load() }
	t.Logf("seed %d: %+v", seed, w.plan)
	w.ladder, _ = leaparray.NewLadder(w.plan.exact, w.plan.levels...)
	w.store = embedded.New(embedded.Options{Now: func() time.Time {
		return time.UnixMilli(w.now())
	}})
	w.lists = newKeyLists(t, w.store, w.now, w.ladder)
	random := faultstore.Random(seed, w.plan.mix)
	w.faults = faultstore.New(faultstore.Options{
		Store: w.lists, Report: t.Errorf,
		Decide: func(r *syncer.Round) faultstore.Fault {
			if w.calm.Load() {
				return faultstore.None
			}
			return random(r)
		},
	})
	w.start()
	if w.plan.rival {
		w.two = w.open("two")
	}
	for range w.plan.ops {
		w.step()
		if t.Failed() {
			t.FailNow()
		}
	}
	w.end()
}

// start opens the first counter under a new name.
func (w *world) start() {
	w.starts++
	w.c = w.open(fmt.Sprint("one", w.starts))
}

// restart closes the first counter and starts it anew: it knows nothing but the store's counts.
func (w *world) restart() {
	w.faults.SetDown(false)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	w.settle(ctx, w.c)
	if err := w.c.Close(ctx); err != nil {
		w.t.Error(err)
	}
	w.lists.check()
	if w.two == nil {
		for key, truth := range w.keys {
			w.ledger(key, truth)
		}
		for key := range w.valued {
			w.ledgerValues(key)
		}
	}
	w.start()
}

func (w *world) open(writer string) *syncer.Counter {
	c, err := syncer.New(syncer.Options{
		Store: w.faults, Now: w.now, Writer: writer, Ack: w.plan.ack, MaxMemory: w.plan.memory,
		Placement: twotier.Placement{Partitions: w.plan.parts},
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {Ladder: w.ladder,
			OnCold: w.plan.onCold}},
		FlushInterval:  time.Duration(10+w.rnd.IntN(200)) * time.Millisecond,
		VerifyInterval: time.Second, Exchanges: 2,
		MaxLag: w.plan.lag,
	})
	if err == nil {
		err = c.Open(context.Background())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { // a failed run must not leave goroutines behind either
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ctx)
	})
	return c
}

func (w *world) step() {
	if w.plan.weeks {
		w.jump.Add(w.rnd.Int64N(max(2, w.ladder.Span()/20)))
	}
	if w.plan.rewinds && w.rnd.IntN(20) == 0 {
		w.image = w.store.Image()
	}
	switch n := w.rnd.IntN(100); {
	case n < 25:
		w.add()
	case n < 50:
		w.acquire()
	case n < 52 && w.two == nil:
		w.burst()
	case n < 60:
		w.stepValues()
	case n < 67:
		w.count()
	case n < 70:
		w.series()
	case n < 72:
		w.forget()
	case n < 75:
		w.bounce()
	case n < 90:
		time.Sleep(time.Duration(w.rnd.IntN(400)) * time.Millisecond)
	case n < 94:
		time.Sleep(time.Duration(w.rnd.IntN(8000)) * time.Millisecond)
	case n < 96 && w.plan.restarts:
		w.restart()
	case n < 97:
		w.jump.Add(w.rnd.Int64N(w.ladder.FineSpan() * 2))
	case n < 98 && !w.plan.weeks:
		w.jump.Add(w.rnd.Int64N(w.ladder.Span() * 2))
	case n < 99 && w.plan.flushes:
		w.lose()
	default:
		w.faults.SetDown(w.rnd.IntN(2) == 0)
	}
	w.verify(w.pick())
	for _, c := range w.counters() {
		if err := c.CheckStates(); err != nil {
			w.t.Error(err)
		}
	}
}

// end heals the store and compares its counts with the true ones (I2), then stops (I9: synctest
// fails if a goroutine of the counter is left).
func (w *world) end() {
	w.faults.SetDown(false)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	w.settle(ctx, w.counters()...)
	w.faults.Deliver()
	if w.plan.flushes {
		// A loss after the last round is found by verifying. With faults, finding and mending it
		// can take any time.
		w.calm.Store(true)
		time.Sleep(10 * time.Second)
		w.settle(ctx, w.counters()...)
	}
	w.lists.check()
	for key, truth := range w.keys {
		w.ledger(key, truth)
		w.verify(key)
	}
	for key := range w.valued {
		w.ledgerValues(key)
		w.verifyValues(key)
	}
	w.reclaimed()
	for _, c := range w.counters() {
		if owed, granted, waiting := c.Room(); owed != 0 || granted != 0 || waiting != 0 {
			w.t.Errorf("at rest %d keys wait for the store, %d operations have room and %d wait "+
				"for it", owed, granted, waiting)
		}
		if err := c.Close(ctx); err != nil {
			w.t.Error(err)
		}
		if err := c.Do(ctx, &twotier.Op{Checks: []twotier.Check{{Key: []byte("k"), N: 1}}},
			new(twotier.Result)); !errors.Is(err, twotier.ErrClosed) {
			w.t.Errorf("after Close: %v", err)
		}
	}
}

func (w *world) counters() []*syncer.Counter {
	if w.two == nil {
		return []*syncer.Counter{w.c}
	}
	return []*syncer.Counter{w.c, w.two}
}

// settle waits until the store has all counts. A key that it refuses is parked for a while, and may
// be refused again.
func (w *world) settle(ctx context.Context, counters ...*syncer.Counter) {
	for _, c := range counters {
		for ctx.Err() == nil && (w.unflushed(c) || c.Stats().PendingBuckets > 0) {
			time.Sleep(time.Second)
		}
		if err := c.Flush(ctx); err != nil {
			w.t.Fatal(err)
		}
	}
}

// unflushed reports whether a counter holds any count that the store lacks.
func (w *world) unflushed(c *syncer.Counter) bool {
	for key := range w.keys {
		if h := c.Held(nil, []byte(key)); h.Found && !h.Clean {
			return true
		}
	}
	for key := range w.valued {
		if h := c.Held(spaceOf(key), []byte(key)); h.Found && !h.Clean {
			return true
		}
	}
	return false
}

// ledger compares a key's buckets in the store with the true counts, and its time to live with the
// buckets' need.
func (w *world) ledger(key string, k *truth) {
	stored := map[leaparray.Stretch]int64{}
	part := w.partition(key)
	if e := w.store.Expires(part, nil, []byte(key)); e == math.MaxInt64 {
		w.t.Errorf("%s has no time to live", key)
	}
	for _, b := range w.store.Get(part, nil, []byte(key)) {
		stored[b.Stretch] = b.N
	}
	w.same("in the store", key, k.buckets, w.nest(stored))
	w.bounded(key, len(stored))
}

// nest adds up cells in the buckets of the coarsest level that contain them. Folding does not
// change these sums.
func (w *world) nest(cells map[leaparray.Stretch]int64) map[int64]int64 {
	sums := map[int64]int64{}
	for s, n := range cells {
		sums[w.coarse(s.Start)] += n
	}
	return sums
}

// coarse returns the start of the bucket of the coarsest level that a moment is in.
func (w *world) coarse(ms int64) int64 { return ms - ms%w.ladder.CoarsestWidth() }

// bounded checks that the store has no more buckets of a key than the ladder keeps and one flush
// brings (I15).
func (w *world) bounded(key string, stored int) {
	if most := w.ladder.MaxCells() + 32; stored > most {
		w.t.Errorf("%s has %d buckets in the store, at most %d wanted", key, stored, most)
	}
}

// same compares the sums of buckets that a window can still see.
func (w *world) same(what, key string, want, got map[int64]int64) {
	w.t.Helper()
	for _, m := range []map[int64]int64{want, got} {
		for b := range m {
			if w.alive(b) && want[b] != got[b] {
				w.t.Errorf("%s of %s: bucket %v holds %d, want %d (now %d)", what, key, b, got[b],
					want[b], w.now())
			}
		}
	}
}

// alive reports whether a window that ends now can see the bucket of the coarsest level that begins
// at a moment.
func (w *world) alive(start int64) bool {
	return start+w.ladder.CoarsestWidth() > w.now()-w.ladder.Span()
}
