package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// scarceWorld is a counter with room for few keys, so that keys come and go all the time, also
// between two operations of one batch. Callers share some keys, and together know how often each
// was admitted.
type scarceWorld struct {
	t     *testing.T
	seed  uint64
	c     *syncer.Counter
	place twotier.Placement
	began time.Time

	mu       sync.Mutex
	admitted map[string]int64
}

// scarceLimit is the limit of each shared key. A key is shared for a while, then another one is.
const (
	scarceLimit = 4
	scarceKeys  = 3
	scarceWhile = 2 * time.Second
)

// moody is a store that has data of every partition and no lists, so that each new key has to be
// read. A few of the reads take long.
type moody struct {
	syncer.Store
	mu  sync.Mutex
	rnd *rand.Rand
}

func (m *moody) Exchange(ctx context.Context, rounds []*syncer.Round) {
	m.mu.Lock()
	takes := time.Duration(m.rnd.Int64N(2e6))
	if rounds[0].Aside && m.rnd.IntN(4) == 0 {
		takes = time.Duration(m.rnd.Int64N(1.9e9))
	}
	m.mu.Unlock()
	time.Sleep(takes)
	m.Store.Exchange(ctx, rounds)
}

// TestScarceModel lets callers share keys of a counter that forgets them again and again, and
// checks that no key is admitted more often than its limit allows.
func TestScarceModel(t *testing.T) { eachSeed(t, *seedsFlag/20, runScarce) }

func runScarce(t *testing.T, seed uint64) {
	w := &scarceWorld{t: t, seed: seed, place: twotier.Placement{Partitions: 3}, began: time.Now(),
		admitted: map[string]int64{}}
	store := embedded.New(embedded.Options{})
	begin(store, w.place.Partitions)
	w.c = open(t, syncer.Options{Store: &moody{Store: store, rnd: w.rand(0)}, Placement: w.place,
		Exchanges: 6, FlushInterval: 5 * time.Millisecond, LoadTimeout: 2 * time.Second,
		MaxMemory: 3 * 8 << 10, Now: w.now})
	var callers sync.WaitGroup
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	for i := range 12 {
		callers.Go(func() { w.caller(ctx, i) })
	}
	callers.Wait()
	if n := w.c.Stats().EvictedTotal; n < 500 {
		t.Errorf("only %d keys were evicted", n)
	}
}

func (w *scarceWorld) rand(of int) *rand.Rand { return rand.New(rand.NewPCG(w.seed, uint64(of))) }

// now runs so fast that a key is idle for seconds within milliseconds.
func (w *scarceWorld) now() int64 { return t0 + 1000*time.Since(w.began).Milliseconds() }

// caller is one of many callers. Half of them only use keys that are new.
func (w *scarceWorld) caller(ctx context.Context, id int) {
	rnd := w.rand(1 + id)
	for n := 0; ctx.Err() == nil && !w.t.Failed(); n++ {
		if id%2 == 0 {
			op := addOp(fmt.Sprint("once", id, "-", n), 1, twotier.AckMemory)
			err := w.c.Do(ctx, op, new(twotier.Result))
			if err != nil && !errors.Is(err, twotier.ErrOverload) {
				w.t.Errorf("add: %v", err)
			}
			time.Sleep(time.Duration(rnd.Int64N(2e6)))
			continue
		}
		w.batch(rnd)
		time.Sleep(time.Duration(rnd.Int64N(100e6)))
	}
}

// batch acquires shared keys, some of them several times.
func (w *scarceWorld) batch(rnd *rand.Rand) {
	ops := make([]twotier.Op, 1+rnd.IntN(6))
	while := time.Since(w.began) / scarceWhile
	for i := range ops {
		op := acquireOp(fmt.Sprint("shared", while, "-", rnd.IntN(scarceKeys)), 1, scarceLimit)
		op.Checks[0].Limits[0].Window = 43_200_000 // longer than the model runs
		ops[i] = *op
	}
	res := make([]twotier.Result, len(ops))
	w.c.DoAll(context.Background(), ops, res)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range ops {
		key := string(ops[i].Checks[0].Key)
		switch err := res[i].Err; {
		case err != nil && !errors.Is(err, twotier.ErrOverload) &&
			!errors.Is(err, twotier.ErrUnavailable):
			w.t.Errorf("%s: %v", key, err)
		case err == nil && res[i].Allowed:
			if w.admitted[key]++; w.admitted[key] > scarceLimit {
				w.t.Errorf("%s was admitted %d times", key, w.admitted[key])
			}
		}
	}
}
