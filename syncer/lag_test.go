package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/syncer"
)

// pacedStore takes this long for each key, from whichever batcher, and does not answer while down.
type pacedStore struct {
	*embedded.Store
	perKey atomic.Int64 // nanoseconds
	down   atomic.Bool
	one    chan struct{}
}

func newPaced(perKey time.Duration) *pacedStore {
	s := &pacedStore{Store: embedded.New(embedded.Options{}), one: make(chan struct{}, 1)}
	s.perKey.Store(int64(perKey))
	return s
}

func (s *pacedStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	if s.down.Load() {
		<-ctx.Done()
		for _, r := range rounds {
			r.Err = ctx.Err()
		}
		return
	}
	keys := 0
	for _, r := range rounds {
		keys += len(r.Keys)
	}
	s.one <- struct{}{}
	time.Sleep(time.Duration(int64(keys) * s.perKey.Load()))
	s.Store.Exchange(ctx, rounds)
	<-s.one
}

// flood counts new keys as fast as allowed, with many callers at a time, each of limited patience.
type flood struct {
	t        *testing.T
	c        *syncer.Counter
	patience time.Duration
	name     func(caller, i int) string

	callers          sync.WaitGroup
	stop             context.CancelFunc
	counted, refused atomic.Int64
}

func (f *flood) start(callers int) *flood {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.t.Cleanup(stop)
	for n := range callers {
		f.callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f.one(f.name(n, i))
				if i%20 == 0 {
					time.Sleep(time.Millisecond) // 20,000 a second each, if nothing delays it
				}
			}
		})
	}
	return f
}

func (f *flood) one(key string) {
	ctx, cancel := context.WithTimeout(context.Background(), f.patience)
	defer cancel()
	switch err := f.c.Do(ctx, addOp(key, 1, twotier.AckMemory), new(twotier.Result)); {
	case err == nil:
		f.counted.Add(1)
	case errors.Is(err, twotier.ErrBehind) && errors.Is(err, twotier.ErrOverload) &&
		ctx.Err() == nil:
		f.refused.Add(1)
	default:
		f.t.Errorf("%s: %v", key, err)
	}
}

func (f *flood) end() {
	f.stop()
	f.callers.Wait()
}

// oldest watches the age of the oldest count for a while.
func oldest(c *syncer.Counter, d time.Duration) (most time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		most = max(most, c.Stats().UnflushedAge)
	}
	return most
}

const (
	testLag = 2 * time.Second
	perKey  = 200 * time.Microsecond // 5,000 a second
)

func openLagging(t *testing.T, s syncer.Store) *syncer.Counter {
	return open(t, syncer.Options{Store: s, MaxLag: testLag, FlushInterval: 50 * time.Millisecond,
		Placement: twotier.Placement{Partitions: 64}})
}

func newKeys(caller, i int) string { return fmt.Sprint("new-", caller, "-", i) }

// TestCountsAreNeverOlderThanMaxLag: new keys come many times faster than the store takes them, and
// the store becomes half as fast in the middle.
func TestCountsAreNeverOlderThanMaxLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPaced(perKey)
		c := openLagging(t, store)
		f := (&flood{t: t, c: c, patience: 20 * time.Millisecond, name: newKeys}).start(8)
		most := oldest(c, 4*time.Second)
		store.perKey.Store(int64(2 * perKey))
		most = max(most, oldest(c, 6*time.Second))
		f.end()
		t.Logf("%d counted, %d refused, the oldest count was %v old", f.counted.Load(),
			f.refused.Load(), most)
		if most > testLag || most < testLag/32 {
			t.Errorf("the oldest count was %v old, with a lag of at most %v", most, testLag)
		}
		if f.refused.Load() == 0 || c.Stats().BehindTotal != f.refused.Load() {
			t.Errorf("%d refused, the counter says %d", f.refused.Load(), c.Stats().BehindTotal)
		}
		flush(t, c)
		if owed, granted, waiting := c.Room(); owed != 0 || granted != 0 || waiting != 0 {
			t.Errorf("at rest %d keys wait for the store, %d operations have room and %d wait "+
				"for it", owed, granted, waiting)
		}
	})
}

// TestManyNewKeysInOnePartition aims a flood at one partition, of which a round takes little, next
// to a steady stream to all others.
func TestManyNewKeysInOnePartition(t *testing.T) {
	race.SkipLong(t)
	synctest.Test(t, func(t *testing.T) {
		place := twotier.Placement{Partitions: 64}
		c := open(t, syncer.Options{Store: newPaced(perKey), MaxLag: testLag,
			FlushInterval: 50 * time.Millisecond, Placement: place,
			Exchanges: 1, MaxRoundKeys: 64})
		aimed := func(_, i int) string { return keyIn(place, 7, fmt.Sprint("aimed-", i, "-")) }
		f := (&flood{t: t, c: c, patience: 200 * time.Millisecond, name: aimed}).start(1)
		ctx, stop := context.WithCancel(context.Background())
		var steady sync.WaitGroup
		steady.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				add(t, c, fmt.Sprint("known-", i%2000), 1, 0)
				time.Sleep(250 * time.Microsecond) // 4,000 a second
			}
		})
		defer steady.Wait() // before the counter is closed
		defer stop()
		most := oldest(c, 8*time.Second)
		f.end()
		t.Logf("%d counted in one partition; the oldest count was %v old", f.counted.Load(), most)
		if most > testLag {
			t.Errorf("the oldest count was %v old, with a lag of at most %v", most, testLag)
		}
	})
}

// TestFloodHoldsUpNobodyElse counts known keys, and asks for limits that are reached, in the middle
// of a flood of new keys.
func TestFloodHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openLagging(t, newPaced(perKey))
		for i := range 100 {
			add(t, c, fmt.Sprint("known-", i), 10, 0)
		}
		flush(t, c)
		f := (&flood{t: t, c: c, patience: 20 * time.Millisecond, name: newKeys}).start(8)
		time.Sleep(time.Second)
		for i := range 100 {
			key := fmt.Sprint("known-", i)
			began := time.Now()
			if res := acquire(t, c, key, 1, 0, limits(3_600_000, 10)); res.Allowed {
				t.Errorf("%s is beyond its limit, and allowed", key)
			}
			if c.Held(nil, []byte(key)).Clean {
				add(t, c, key, 1, 0) // the key has to be flushed again
			}
			add(t, c, key, 1, 0)
			if took := time.Since(began); took > 0 {
				t.Errorf("%s was held up for %v", key, took)
			}
			time.Sleep(20 * time.Millisecond)
		}
		f.end()
		if f.refused.Load() == 0 {
			t.Error("none of the flood was refused")
		}
	})
}

// TestLagWithoutTheStore: while the store does not answer, memory is the only bound, and answers
// are marked as degraded. Once the store answers, the unflushed counts leave memory before there is
// room for more.
func TestLagWithoutTheStore(t *testing.T) {
	race.SkipLong(t)
	synctest.Test(t, func(t *testing.T) {
		store := newPaced(perKey)
		c := openLagging(t, store)
		add(t, c, "first", 1, 0)
		flush(t, c)
		store.down.Store(true)
		f := (&flood{t: t, c: c, patience: 200 * time.Millisecond, name: newKeys}).start(1)
		time.Sleep(4 * time.Second)
		refused := f.refused.Load()
		time.Sleep(4 * time.Second)
		if n := f.refused.Load() - refused; n > 0 {
			t.Errorf("%d refused although the store is down", n)
		}
		if age := c.Stats().UnflushedAge; age < 2*testLag {
			t.Errorf("the oldest count is %v old", age)
		}
		var res twotier.Result
		if err := c.Do(context.Background(), addOp("marked", 1, twotier.AckMemory),
			&res); err != nil || !res.Degraded {
			t.Errorf("an answer without the store is not marked: %+v, %v", res, err)
		}
		f.end()
		store.down.Store(false)
		time.Sleep(3 * time.Second) // until it has been tried again
		g := (&flood{t: t, c: c, patience: 200 * time.Millisecond,
			name: func(n, i int) string { return fmt.Sprint("later-", n, i) }}).start(1)
		time.Sleep(100 * time.Millisecond)
		owed, _, _ := c.Room()
		// Without the wait it would have counted 2,000. While a failed partition is tried again,
		// its flusher has room.
		if g.counted.Load() > 100 || owed == 0 {
			t.Errorf("%d counted although %d keys wait since the store was down",
				g.counted.Load(), owed)
		}
		time.Sleep(time.Duration(f.counted.Load()) * perKey)
		if most := oldest(c, 3*time.Second); most > testLag {
			t.Errorf("once all is made up for, a count is %v old", most)
		}
		g.end()
	})
}

// TestWhatHasCountedMostIsFlushedFirst: a few keys count all the time among many that count once.
// Few counts of the busy keys are in memory alone.
func TestWhatHasCountedMostIsFlushedFirst(t *testing.T) {
	race.SkipLong(t)
	synctest.Test(t, func(t *testing.T) {
		store := newPaced(perKey)
		c := open(t, syncer.Options{Store: store, MaxLag: 200 * time.Second,
			FlushInterval: 50 * time.Millisecond,
			Placement:     twotier.Placement{Partitions: 4}, Exchanges: 1})
		f := (&flood{t: t, c: c, patience: 200 * time.Millisecond, name: newKeys}).start(4)
		time.Sleep(6 * time.Second)
		for i := range 4000 {
			add(t, c, fmt.Sprint("busy-", i%10), 1, 0)
			time.Sleep(time.Millisecond)
		}
		waiting, age := int64(0), c.Stats().UnflushedAge
		c.EachUnflushed(func(_, key []byte, n int64) {
			if string(key[:4]) == "busy" {
				waiting += n
			}
		})
		f.end()
		t.Logf("the oldest count is %v old; of 1,000 a second on 10 keys %d are in memory alone",
			age, waiting)
		if age < 4*time.Second || waiting > 2500 {
			t.Errorf("the oldest count is %v old, and %d of 1,000 a second are in memory alone",
				age, waiting)
		}
		store.perKey.Store(int64(perKey) / 100)
	})
}

// halfStore does not apply the rounds of one partition.
type halfStore struct {
	*pacedStore
	broken *atomic.Int64
}

func (s halfStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	var works []*syncer.Round
	for _, r := range rounds {
		if int64(r.Partition) == s.broken.Load() {
			r.Err = fmt.Errorf("%w: broken", syncer.ErrNotApplied)
		} else {
			works = append(works, r)
		}
	}
	if len(works) > 0 {
		s.pacedStore.Exchange(ctx, works)
	}
}

// TestAPauseIsNotDown asks for keys at their limits while nothing at all comes from the store for
// nearly two timeouts. Only after that does the store count as down.
func TestAPauseIsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		inner := embedded.New(embedded.Options{})
		before := open(t, syncer.Options{Store: inner})
		for i := range n {
			add(t, before, fmt.Sprint("full-", i), 1, 0)
		}
		flush(t, before)
		store := newSerialStore(t, inner, time.Microsecond)
		for _, pause := range []time.Duration{1900 * time.Millisecond, 4 * time.Second} {
			c := open(t, syncer.Options{Store: store, RoundTimeout: time.Second})
			go store.pause(pause)
			time.Sleep(time.Millisecond)
			var crowd sync.WaitGroup
			var allowed atomic.Int64
			for i := range n {
				crowd.Go(func() {
					var res twotier.Result
					key := fmt.Sprint("full-", i)
					err := c.Do(within(t, 3*time.Second), acquireOp(key, 1, 1), &res)
					if err != nil {
						t.Errorf("%s: %v", key, err)
					} else if res.Allowed {
						allowed.Add(1)
					}
				})
			}
			down := pause > 2*time.Second
			if crowd.Wait(); allowed.Load() > 0 != down {
				t.Errorf("after a pause of %v, %d are let through", pause, allowed.Load())
			}
			time.Sleep(5 * time.Second)
		}
	})
}

// TestStoreThatSlowsDownAtOnce: the store suddenly takes ten times as long when as many keys wait
// for it as allowed, new or known ones. No count becomes older than the lag. If the store takes
// forty times as long, none becomes older than four times the lag.
func TestStoreThatSlowsDownAtOnce(t *testing.T) {
	race.SkipLong(t)
	known := func(caller, i int) string { return fmt.Sprint("known-", caller, "-", i%2000) }
	for name, tt := range map[string]struct {
		keys  func(caller, i int) string
		times int64
		most  time.Duration
	}{
		"new keys, tenfold":     {newKeys, 10, testLag},
		"known keys, tenfold":   {known, 10, testLag},
		"known keys, fortyfold": {known, 40, 4 * testLag},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newPaced(perKey)
				c := openLagging(t, store)
				f := (&flood{t: t, c: c, patience: 200 * time.Millisecond, name: tt.keys}).start(8)
				before := oldest(c, 10*time.Second)
				store.perKey.Store(tt.times * int64(perKey))
				most := oldest(c, 15*time.Second)
				f.end()
				t.Logf("the oldest count was %v old, then %v", before, most)
				if most > tt.most || most < 2*before {
					t.Errorf("the oldest was %v old, and %v before; want at most %v", most, before,
						tt.most)
				}
				store.perKey.Store(int64(perKey) / 100)
				flush(t, c)
			})
		})
	}
}
