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
