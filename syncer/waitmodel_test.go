package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// crowdWorld is a counter that many callers use at the same time, each with a different patience,
// over a store that is slow, full or silent by turns. Every caller has separate keys, so it knows
// their true counts. All callers use one key that is at its limit.
type crowdWorld struct {
	t      *testing.T
	seed   uint64
	inner  *embedded.Store
	faults *faultstore.Store
	c      *syncer.Counter
	place  twotier.Placement
	began  time.Time
	slow   atomic.Int64 // an exchange takes up to this long
	// there marks a store that may be slow or full, but always answers. Then nothing may be let
	// through because its key is unknown.
	there bool
	mix   faultstore.Mix
	speed int64       // of the clock by which keys age
	mute  int         // no caller waits for the store in this partition
	rush  atomic.Bool // all callers count all the time
}

// TestCrowdModel runs many callers at once, and compares each answer with its caller's true counts.
func TestCrowdModel(t *testing.T) { eachSeed(t, *seedsFlag/20, runCrowd) }

func runCrowd(t *testing.T, seed uint64) {
	w := &crowdWorld{t: t, seed: seed, inner: embedded.New(embedded.Options{}),
		place: twotier.Placement{Partitions: 3}, began: time.Now()}
	rnd := w.rand(0)
	delays := w.rand(1)
	w.speed, w.mute = 1+199*rnd.Int64N(2), rnd.IntN(w.place.Partitions+1)
	if w.there = rnd.IntN(2) == 0; !w.there {
		w.mix = faultstore.Mix{ReplyLost: rnd.IntN(50), RequestLost: rnd.IntN(50),
			Hang: rnd.IntN(5), KeyRefused: rnd.IntN(2) * rnd.IntN(100)}
	}
	w.faults = faultstore.New(faultstore.Options{Store: w.inner, Report: t.Errorf,
		Decide: faultstore.Random(seed, w.mix),
		Delay:  func() time.Duration { return time.Duration(delays.Int64N(w.slow.Load() + 1)) },
	})
	w.fill()
	w.c = w.openFull(rnd)
	var callers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for i := range 12 {
		callers.Go(func() { w.caller(ctx, i) })
	}
	for range 15 {
		w.weather(rnd)
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
	}
	w.calm()
	stop()
	callers.Wait()
	w.closeWithWaiters(rnd)
}

func (w *crowdWorld) rand(of int) *rand.Rand { return rand.New(rand.NewPCG(w.seed, uint64(of))) }

// fill counts keys up to their limits in another counter, which is then closed.
func (w *crowdWorld) fill() {
	before := open(w.t, syncer.Options{Store: w.inner, Placement: w.place, Now: w.now,
		Namespaces: w.wide("")})
	for i := range fullKeys {
		add(w.t, before, fmt.Sprint("full", i), 10, 0)
	}
	if err := before.Close(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

const fullKeys = 200

// wide returns a configuration whose coarsest buckets are a day wide.
func (w *crowdWorld) wide(cold syncer.OnCold) map[string]syncer.Namespace {
	levels := leaparray.DefaultLevels()
	levels[len(levels)-1] = leaparray.Level{Width: 24 * time.Hour, Count: 2}
	ladder, err := leaparray.NewLadder(leaparray.DefaultExact, levels...)
	if err != nil {
		w.t.Fatal(err)
	}
	return map[string]syncer.Namespace{
		twotier.DefaultNamespace: {Ladder: ladder, OnCold: cold},
	}
}

// now starts at the beginning of a bucket of the coarsest level, and the run stays within it, so
// that it is known how much there is to take back.
func (w *crowdWorld) now() int64 {
	return t0/86_400_000*86_400_000 + w.speed*time.Since(w.began).Milliseconds()
}

func (w *crowdWorld) openFull(rnd *rand.Rand) *syncer.Counter {
	opt := syncer.Options{Store: w.faults, Placement: w.place, Now: w.now, Exchanges: 2,
		FlushInterval:  20 * time.Millisecond,
		VerifyInterval: time.Second, LoadTimeout: 2 * time.Second,
		Namespaces: w.wide(syncer.OnColdDeny)}
	if w.there {
		opt.Namespaces = w.wide("") // OnCold is for a store that is known to be down
	}
	if rnd.IntN(2) == 0 {
		opt.MaxMemory = 3 * 8 << 10
	}
	if rnd.IntN(2) == 0 {
		opt.MaxLag = 1 << rnd.IntN(12) * time.Millisecond
	}
	c, err := syncer.New(opt)
	if err == nil {
		err = c.Open(context.Background())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// weather changes the store's faults.
func (w *crowdWorld) weather(rnd *rand.Rand) {
	w.faults.SetFull(rnd.IntN(4) == 0)
	if w.there {
		w.slow.Store([]int64{0, 1e6, 10e6, 300e6}[rnd.IntN(4)])
		return
	}
	w.faults.SetDown(rnd.IntN(6) == 0)
	w.slow.Store([]int64{0, 1e6, 10e6, 300e6, 1500e6}[rnd.IntN(5)])
}

// calm heals the store and waits until it has everything; then no count may stay in memory alone
// for long, even if other callers wait for the store all the time.
func (w *crowdWorld) calm() {
	w.faults.SetDown(false)
	w.faults.SetFull(false)
	w.slow.Store(1e6)
	time.Sleep(15 * time.Second)
	w.rush.Store(true)
	w.slow.Store(5e6)
	for range 50 {
		time.Sleep(10 * time.Millisecond)
		if age := w.c.Stats().UnflushedAge; w.there && age > 100*time.Millisecond {
			w.t.Errorf("a count is in memory alone for %v", age)
		}
	}
}

// caller is one of many callers. It knows the true counts of its keys.
func (w *crowdWorld) caller(ctx context.Context, id int) {
	rnd, mine := w.rand(2+id), map[string]int64{}
	for ctx.Err() == nil {
		key, kind := fmt.Sprint("of", id, "-", rnd.IntN(20)), rnd.IntN(8)
		if w.rush.Load() {
			kind = 0
			time.Sleep(time.Duration(rnd.Int64N(1e6))) // refusals take no time
		}
		switch kind {
		case 0, 1:
			w.add(rnd, mine, key, 1+rnd.Int64N(5))
		case 2:
			w.add(rnd, mine, key, -1-rnd.Int64N(5))
		case 3, 4:
			w.acquireFull(rnd)
		case 5:
			w.batch(rnd, mine, id)
		case 6:
			w.forget(rnd, mine, key)
		case 7:
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		}
		if w.t.Failed() {
			return
		}
	}
	for key, want := range mine {
		w.verify(key, want)
	}
}

// patience returns a context with a random deadline, or with none.
func patience(rnd *rand.Rand) (context.Context, context.CancelFunc) {
	if rnd.IntN(8) == 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(),
		time.Duration(rnd.Int64N([]int64{1, 1e6, 1e8, 3e9}[rnd.IntN(4)])))
}

// inTime checks that no caller waited longer than allowed: a late decision might have been counted
// late, too.
func (w *crowdWorld) inTime(ctx context.Context, what string) {
	if until, bounded := ctx.Deadline(); bounded && time.Since(until) > time.Millisecond {
		w.t.Errorf("%s: answered %v after its deadline", what, time.Since(until))
	}
}

// settled reports whether an operation has counted. An error means that it has not, except for an
// unknown outcome.
func (w *crowdWorld) settled(what string, err error) (counted bool) {
	switch {
	case err == nil, errors.Is(err, twotier.ErrUnknownOutcome):
		return true
	case !errors.Is(err, twotier.ErrUnavailable) && !errors.Is(err, twotier.ErrOverload):
		w.t.Errorf("%s: %v", what, err)
	}
	return false
}

// add counts, or takes back no more than there is. A count that is acknowledged as stored must be
// in the store.
func (w *crowdWorld) add(rnd *rand.Rand, mine map[string]int64, key string, n int64) {
	op := addOp(key, n, twotier.Ack(1+rnd.IntN(2)))
	switch {
	case w.place.Of(nil, []byte(key)) == w.mute:
		op.Ack = twotier.AckMemory
	case w.rush.Load():
		op.Ack = twotier.AckStore
	}
	ctx, cancel := patience(rnd)
	if op.Ack == twotier.AckStore {
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rnd.Int64N(2e9)))
	}
	defer cancel()
	err := w.c.Do(ctx, op, new(twotier.Result))
	w.inTime(ctx, "add")
	if w.settled(key, err) {
		mine[key] = max(0, mine[key]+n)
	}
	if op.Ack == twotier.AckStore && err == nil {
		if got := w.stored(key); got != mine[key] {
			w.t.Errorf("%s: acknowledged %d, the store has %d", key, mine[key], got)
		}
	}
}

// stored returns the store's count of a key.
func (w *crowdWorld) stored(key string) (sum int64) {
	for _, b := range w.inner.Get(w.place.Of(nil, []byte(key)), nil, []byte(key)) {
		sum += b.N
	}
	return sum
}

// acquireFull asks for a key at its limit: whatever the store's fault, it is not admitted.
func (w *crowdWorld) acquireFull(rnd *rand.Rand) {
	ctx, cancel := patience(rnd)
	defer cancel()
	var res twotier.Result
	op := acquireOp(fmt.Sprint("full", rnd.IntN(fullKeys)), 1, 10)
	op.Checks[0].Limits[0].Window = 86_400_000
	err := w.c.Do(ctx, op, &res)
	w.inTime(ctx, "acquire")
	if w.settled("full", err) && res.Allowed {
		w.t.Errorf("admitted over the limit: %+v", res)
	}
}

// batch carries out several operations, some of the same key.
func (w *crowdWorld) batch(rnd *rand.Rand, mine map[string]int64, id int) {
	var ops []twotier.Op
	for range 1 + rnd.IntN(6) {
		key := fmt.Sprint("of", id, "-", rnd.IntN(20))
		switch rnd.IntN(3) {
		case 0:
			ops = append(ops, *addOp(key, 1+rnd.Int64N(3), twotier.AckMemory))
		case 1:
			ops = append(ops, *addOp(key, -1, twotier.AckMemory))
		case 2:
			ops = append(ops, *acquireOp(key, 1, 20))
			ops[len(ops)-1].Checks[0].Limits[0].Window = 86_400_000
		}
	}
	ctx, cancel := patience(rnd)
	defer cancel()
	res := make([]twotier.Result, len(ops))
	w.c.DoAll(ctx, ops, res)
	w.inTime(ctx, "batch")
	for i := range ops {
		check := &ops[i].Checks[0]
		key := string(check.Key)
		counted := w.settled(key, res[i].Err)
		if by, bounded := ctx.Deadline(); bounded && res[i].Err == nil {
			late := res[i].Checks[0].TS - w.now() - time.Until(by).Milliseconds()
			if ops[i].Kind == twotier.Acquire && res[i].Allowed && late > 1 {
				w.t.Errorf("%s: counted %d ms after the time was up", key, late)
			}
		}
		if ops[i].Kind == twotier.Acquire && counted {
			if room := mine[key]+1 <= 20; room != res[i].Allowed && !res[i].Degraded ||
				res[i].Allowed && !room {
				w.t.Errorf("%s: %d are counted: %+v", key, mine[key], res[i])
			}
			counted = res[i].Allowed
		}
		if counted {
			mine[key] = max(0, mine[key]+check.N)
		}
		if ops[i].Kind == twotier.Acquire && res[i].Err == nil && !res[i].Degraded {
			if l := res[i].Checks[0].Limits[0]; l.Hi != mine[key] {
				w.t.Errorf("%s: %d are counted, the answer says %+v", key, mine[key], l)
			}
		}
	}
}

func (w *crowdWorld) forget(rnd *rand.Rand, mine map[string]int64, key string) {
	ctx, cancel := patience(rnd)
	if _, bounded := ctx.Deadline(); !bounded {
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), 30*time.Second)
	}
	defer cancel()
	err := w.c.ResetKey(ctx, nil, []byte(key))
	w.inTime(ctx, "forget")
	if w.settled(key, err) {
		mine[key] = 0
	}
	if err == nil {
		if got := w.stored(key); got != 0 {
			w.t.Errorf("%s: reset, and the store has %d", key, got)
		}
	}
}

// verify compares a key's count with its caller's true count. There may be no room for the key at
// once, and messages may be lost, even so many in a row that the answer is late.
func (w *crowdWorld) verify(key string, want int64) {
	op := &twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{{Key: []byte(key), Limits: limits(86_400_000, 0)}}}
	var res twotier.Result
	err := w.c.Do(context.Background(), op, &res)
	for range 60 {
		late := errors.Is(err, twotier.ErrUnavailable) && !w.there
		if !late && !errors.Is(err, twotier.ErrOverload) && (err != nil || !res.Degraded) {
			break
		}
		time.Sleep(time.Second)
		err = w.c.Do(context.Background(), op, &res)
	}
	if err != nil || res.Checks[0].Limits[0].Hi != want {
		w.t.Errorf("%s counts %+v, want %d: %v", key, res, want, err)
	}
}

// closeWithWaiters closes the counter while operations wait for something that never comes. The
// bubble fails if any goroutine is left.
func (w *crowdWorld) closeWithWaiters(rnd *rand.Rand) {
	w.faults.SetDown(true)
	var waiters sync.WaitGroup
	for i := range 6 {
		op := []*twotier.Op{addOp("last", 1, twotier.AckStore),
			acquireOp(fmt.Sprint("never", i), 1, 1)}[i%2]
		kind := rnd.IntN(3)
		waiters.Go(func() {
			switch ctx := context.Background(); kind {
			case 0:
				_ = w.c.Do(ctx, op, new(twotier.Result))
			case 1:
				w.c.DoAll(ctx, []twotier.Op{*op}, make([]twotier.Result, 1))
			case 2:
				_ = w.c.ResetKey(ctx, nil, op.Checks[0].Key)
				_ = w.c.DropKey(ctx, nil, op.Checks[0].Key, true)
			}
		})
	}
	time.Sleep(time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.c.Close(ctx)
	waiters.Wait()
}
