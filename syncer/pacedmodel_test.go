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
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// pacedWorld is a counter that knows nothing yet, over a store that has keys with all the buckets
// of their ladder, each at its limit or banned. The store always answers, at a pace that changes,
// and sometimes pauses. However many requests come at once, none may be let through because its key
// is unknown, and none may be counted.
type pacedWorld struct {
	t     *testing.T
	seed  uint64
	store *serialStore
	c     *syncer.Counter
	place twotier.Placement
	keys  int
	now   int64
}

// pacedBan is how long the bans last, in milliseconds.
const pacedBan = 600_000

// TestPacedModel sends crowds of callers to a counter without any key in memory.
func TestPacedModel(t *testing.T) { eachSeed(t, *seedsFlag/20, runPaced) }

func runPaced(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := &pacedWorld{t: t, seed: seed, keys: 60 + rnd.IntN(60),
		place: twotier.Placement{Partitions: 1 + rnd.IntN(20)}, now: time.Now().UnixMilli()}
	inner := embedded.New(embedded.Options{})
	w.fill(inner)
	w.store = newSerialStore(t, inner, w.pace(rnd))
	opt := syncer.Options{Store: w.store, Placement: w.place, Exchanges: 1 + rnd.IntN(4),
		Now: w.clock, FlushInterval: 20 * time.Millisecond, LoadTimeout: 10 * time.Second}
	if rnd.IntN(2) == 0 {
		opt.Store = struct{ syncer.Store }{w.store} // without its list of keys
	}
	w.c = open(t, opt)
	ctx, stop := context.WithCancel(context.Background())
	var weather, callers sync.WaitGroup
	weather.Go(func() { w.weather(ctx, rand.New(rand.NewPCG(seed, 1))) })
	for i := range 30 {
		callers.Go(func() { w.caller(rand.New(rand.NewPCG(seed, uint64(2+i)))) })
	}
	callers.Wait()
	stop()
	weather.Wait()
	w.calm()
	if n := w.c.Stats().PendingBuckets; n != 0 {
		t.Errorf("%d buckets are pending: refusals counted", n)
	}
}

// clock stands still, so that full keys stay full.
func (w *pacedWorld) clock() int64 { return w.now }

// pace draws how long the store takes for a bucket: all keys take it up to some seconds.
func (w *pacedWorld) pace(rnd *rand.Rand) time.Duration {
	return time.Duration([]int64{1_000, 30_000, 150_000, 1_000_000}[rnd.IntN(4)])
}

// weather changes the pace, and has the store pause for less time than proves that it is gone.
func (w *pacedWorld) weather(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rnd.IntN(4000)) * time.Millisecond)
		if w.store.each.Store(int64(w.pace(rnd))); rnd.IntN(2) == 0 {
			w.store.pause(time.Duration(900+rnd.IntN(1000)) * time.Millisecond)
		}
	}
}

// fill counts each key in every bucket of its ladder, and bans every other one.
func (w *pacedWorld) fill(inner *embedded.Store) {
	before := open(w.t, syncer.Options{Store: inner, Placement: w.place, Now: w.clock})
	var ops []twotier.Op
	for i := range w.keys {
		key := fmt.Sprint("full", i)
		ops = ops[:0]
		for _, l := range leaparray.DefaultLevels() {
			for j := range int64(l.Count) - 1 {
				op := addOp(key, 1, 0)
				op.TS = w.now - j*l.Width.Milliseconds()
				ops = append(ops, *op)
			}
		}
		res := make([]twotier.Result, len(ops))
		if before.DoAll(context.Background(), ops, res); res[0].Err != nil {
			w.t.Fatal(res[0].Err)
		}
		if i%2 == 0 {
			do(w.t, before, banned(key, 1, pacedBan, 0, limits(3_600_000, 1)))
		}
	}
	if err := before.Close(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// op returns an operation that must be refused: a key at its limit, or one that is banned and has
// plenty of room.
func (w *pacedWorld) op(rnd *rand.Rand) twotier.Op {
	i := rnd.IntN(w.keys)
	key := fmt.Sprint("full", i)
	if i%2 == 0 {
		return banned(key, 1, pacedBan, 0, limits(3_600_000, 1_000_000))
	}
	return *acquireOp(key, 1, 1)
}

// caller asks at the same time as the others, alone or for many keys in a batch.
func (w *pacedWorld) caller(rnd *rand.Rand) {
	for range 8 {
		ctx, cancel := context.WithTimeout(context.Background(),
			time.Duration(1+rnd.Int64N([]int64{1e8, 2e9, 8e9}[rnd.IntN(3)])))
		ops := make([]twotier.Op, 1+rnd.IntN(2)*rnd.IntN(w.keys))
		for i := range ops {
			ops[i] = w.op(rnd)
		}
		res := make([]twotier.Result, len(ops))
		if len(ops) == 1 {
			res[0].Err = w.c.Do(ctx, &ops[0], &res[0])
		} else {
			w.c.DoAll(ctx, ops, res)
		}
		cancel()
		for i := range ops {
			w.refused(&ops[i], &res[i])
		}
		time.Sleep(time.Duration(rnd.Int64N(1e9)))
	}
}

// refused checks an answer: refused, or not in time.
func (w *pacedWorld) refused(op *twotier.Op, res *twotier.Result) {
	switch key := op.Checks[0].Key; {
	case res.Err != nil && !errors.Is(res.Err, twotier.ErrUnavailable):
		w.t.Errorf("%s: %v", key, res.Err)
	case res.Err == nil && res.Allowed:
		w.t.Errorf("%s was let through: %+v", key, *res)
	}
}

// calm checks that a crowd proceeds: at an even pace, hardly any load is late any more, and all
// keys are known after the time that the store needs for them.
func (w *pacedWorld) calm() {
	w.store.each.Store(130_000)
	time.Sleep(5 * time.Second)
	c := open(w.t, syncer.Options{Store: w.store, Placement: w.place, Now: w.clock,
		FlushInterval: 20 * time.Millisecond})
	late := w.store.late.Load()
	var crowd sync.WaitGroup
	for i := range w.keys {
		crowd.Go(func() {
			var res twotier.Result
			err := c.Do(within(w.t, 30*time.Second), acquireOp(fmt.Sprint("full", i), 1, 1), &res)
			if err != nil || res.Allowed {
				w.t.Errorf("full%d: %+v, %v", i, res, err)
			}
		})
	}
	crowd.Wait()
	if late = w.store.late.Load() - late; late > int64(w.place.Partitions+8) {
		w.t.Errorf("%d rounds were late at an even pace", late)
	}
}

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
