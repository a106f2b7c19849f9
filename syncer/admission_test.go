package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/syncer"
)

// TestRoomThatIsNotUsedGoesToTheNext: operations wait for room that they then don't use, and others
// wait behind them.
func TestRoomThatIsNotUsedGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, syncer.Options{Store: newPaced(100 * time.Millisecond),
			VerifyInterval: time.Hour, Exchanges: 1,
			MaxLag: time.Millisecond, FlushInterval: 50 * time.Millisecond, // room for one key
			Placement:  twotier.Placement{Partitions: 4},
			Namespaces: map[string]syncer.Namespace{"full": {MaxKeys: 1}}})
		one := func(ns, key string) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			op := addOp(key, 1, twotier.AckMemory)
			op.Checks[0].NS = []byte(ns)
			return c.Do(ctx, op, new(twotier.Result))
		}
		if err := one("full", "first"); err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for i := range 5 {
			waiting.Go(func() {
				if err := one("full", fmt.Sprint("another-", i)); !errors.Is(err,
					twotier.ErrMaxKeys) {
					t.Errorf("one too many in its namespace: %v", err)
				}
			})
			synctest.Wait()
		}
		waiting.Go(func() {
			began := time.Now()
			if err := one("", "last"); err != nil || time.Since(began) > time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
		waiting.Wait()
	})
}

// TestLeastRoom has many callers count new keys while there is room for few at a time.
func TestLeastRoom(t *testing.T) {
	race.SkipLong(t)
	c := open(t, syncer.Options{Store: embedded.New(embedded.Options{}), MaxLag: time.Microsecond,
		FlushInterval: time.Hour, VerifyInterval: time.Hour, Exchanges: 1,
		Placement: twotier.Placement{Partitions: 4}})
	var callers sync.WaitGroup
	for n := range 8 {
		callers.Go(func() {
			for i := range 2000 {
				ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
				err := c.Do(ctx, addOp(fmt.Sprint(n, "-", i), 1, twotier.AckMemory),
					new(twotier.Result))
				cancel()
				if err != nil {
					t.Errorf("caller %d, key %d: %v", n, i, err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// slowLane takes a moment for even partitions, and a long time for odd ones.
type slowLane struct{ *embedded.Store }

func (s slowLane) Exchange(ctx context.Context, rounds []*syncer.Round) {
	time.Sleep(100 * time.Millisecond)
	if rounds[0].Partition%2 == 1 {
		time.Sleep(5 * time.Second)
	}
	s.Store.Exchange(ctx, rounds)
}

// TestBatchWaitsWhereThereIsNoRoom: a batch counts through two flushers without room, one of which
// soon has room again.
func TestBatchWaitsWhereThereIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place := twotier.Placement{Partitions: 4}
		c := open(t, syncer.Options{Store: slowLane{embedded.New(embedded.Options{})}, Exchanges: 2,
			Placement: place,
			MaxLag:    time.Millisecond, RoundTimeout: time.Minute})
		add(t, c, keyIn(place, 0, "first"), 1, 0)
		add(t, c, keyIn(place, 1, "first"), 1, 0)
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		ops := []twotier.Op{*addOp(keyIn(place, 2, "a"), 1, twotier.AckMemory),
			*addOp(keyIn(place, 3, "a"), 1, twotier.AckMemory)}
		res := make([]twotier.Result, len(ops))
		c.DoAll(ctx, ops, res)
		if res[0].Err != nil || !errors.Is(res[1].Err, twotier.ErrBehind) {
			t.Errorf("%v where there was room, %v where there was none", res[0].Err, res[1].Err)
		}
		time.Sleep(time.Minute) // until all is in the store
	})
}

// heldStore answers an exchange that writes only when allowed.
type heldStore struct {
	*embedded.Store
	answer chan struct{}
}

func (s heldStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.Store.Exchange(ctx, rounds)
	for _, r := range rounds {
		if r.Seq > 0 {
			<-s.answer
			return
		}
	}
}

// openHeld returns a counter whose lag leaves room for one key or a few, and that has one key in
// flight.
func openHeld(t *testing.T, lag time.Duration) (*syncer.Counter, heldStore) {
	s := heldStore{embedded.New(embedded.Options{}), make(chan struct{})}
	c := open(t, syncer.Options{Store: s, Placement: twotier.Placement{Partitions: 2}, Exchanges: 1,
		MaxLag:        lag,
		FlushInterval: 10 * time.Millisecond, VerifyInterval: time.Hour, RoundTimeout: time.Second})
	add(t, c, keyIn(twotier.Placement{Partitions: 2}, 0, "first"), 1, 0)
	time.Sleep(time.Second)
	return c, s
}

// TestChangingHandsEndsTheWaitForRoom: an operation waits for room when its partition is given to
// another counter. It must go there, and learns that at once.
func TestChangingHandsEndsTheWaitForRoom(t *testing.T) {
	for name, give := range map[string]func(c *syncer.Counter){
		"ceded":    func(c *syncer.Counter) { _ = c.BeginHandoff(context.Background(), 1) },
		"disowned": func(c *syncer.Counter) { c.StopOwning(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := openHeld(t, time.Millisecond)
				key, told := keyIn(twotier.Placement{Partitions: 2}, 1, "k"), make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					defer cancel()
					told <- c.Do(ctx, addOp(key, 1, twotier.AckMemory), new(twotier.Result))
				}()
				synctest.Wait()
				if _, _, waiting := c.Room(); waiting != 1 {
					t.Fatalf("%d operations wait for room", waiting)
				}
				began := time.Now()
				go give(c)
				if err := <-told; !errors.Is(err, twotier.ErrNotOwner) || time.Since(began) > 0 {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				close(s.answer)
			})
		})
	}
}

// TestWhatIsSealedTakesNoRoom: a partition whose keys take up all the room is handed over. As long
// as its keys are not flushed, the room is there for others.
func TestWhatIsSealedTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := openHeld(t, time.Second)
		place, keys := twotier.Placement{Partitions: 2}, c.MostRoom()-1
		for i := range keys {
			add(t, c, keyIn(place, 1, fmt.Sprint("k", i, "-")), 1, 0)
		}
		told := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			told <- c.Do(ctx, addOp(keyIn(place, 0, "new"), 1, twotier.AckMemory),
				new(twotier.Result))
		}()
		synctest.Wait()
		if _, _, waiting := c.Room(); waiting != 1 {
			t.Fatalf("%d operations wait for room", waiting)
		}
		if err := c.BeginHandoff(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(told) == 0 {
			t.Error("there is no room although the store is told of nothing")
		}
		c.StartOwning(1)
		if owed, _, _ := c.Room(); owed != keys+2 {
			t.Errorf("%d keys wait for the store, want %d", owed, keys+2)
		}
		close(s.answer)
		if err := <-told; err != nil {
			t.Error(err)
		}
	})
}

// TestBatchGoesOnBehindWhatWaitsForRoom: operations of a batch wait for room. Later ones that need
// none are carried out meanwhile, except the ones that share a key with one that waits.
func TestBatchGoesOnBehindWhatWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := openHeld(t, time.Second)
		fill, known := c.MostRoom()-1, "fill-0"
		for i := range fill {
			add(t, c, fmt.Sprint("fill-", i), 1, 0)
		}
		both := acquireOp("new", 1, 2)
		both.Checks = append(both.Checks, acquireOp("fill-1", 10, 100).Checks...)
		ops := []twotier.Op{*acquireOp("new", 1, 2), *addOp(known, 1, 0), *both,
			*addOp("fill-1", 7, 0), *addOp(known, 100, 0), *addOp("new", 50, 0),
			*acquireOp("new", 1, 60), *acquireOp("fill-1", 1, 100)}
		res, done := make([]twotier.Result, len(ops)), make(chan struct{})
		go func() {
			c.DoAll(within(t, time.Hour), ops, res)
			close(done)
		}()
		synctest.Wait()
		if _, _, waiting := c.Room(); waiting != 1 {
			t.Errorf("%d operations wait for room", waiting)
		}
		n := int64(0)
		c.EachUnflushed(func(_, _ []byte, of int64) { n += of })
		if n -= 1 + fill; n != 101 {
			t.Errorf("%d are counted while the batch waits, want 101 of what needs no room", n)
		}
		close(s.answer)
		<-done
		for i := range res {
			if res[i].Err != nil || !res[i].Allowed {
				t.Errorf("operation %d: %+v", i, res[i])
			}
		}
		for i, want := range map[int]int64{6: 53, 7: 19} {
			if n := res[i].Checks[0].Limits[0].Count; n != want {
				t.Errorf("operation %d was decided at %d, want %d: not in order", i, n, want)
			}
		}
	})
}

// TestRefusalSaysHowLong: more operations wait for room than get any in time, at a store that takes
// ten keys a second.
func TestRefusalSaysHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, syncer.Options{Store: newPaced(100 * time.Millisecond), Exchanges: 1,
			VerifyInterval: time.Hour, MaxLag: time.Millisecond, // room for one key
			FlushInterval: 50 * time.Millisecond, Placement: twotier.Placement{Partitions: 4}})
		var waiting sync.WaitGroup
		for i := range 200 {
			waiting.Go(func() {
				op := addOp(fmt.Sprint("patient-", i), 1, 0)
				_ = c.Do(within(t, time.Hour), op, new(twotier.Result))
			})
		}
		synctest.Wait()
		batch := []twotier.Op{*addOp("b1", 1, 0), *acquireOp("b2", 1, 9)}
		res := make([]twotier.Result, len(batch))
		for name, try := range map[string]func() error{
			"add": func() error {
				return c.Do(within(t, 4*time.Second), addOp("a", 1, 0), &res[0])
			},
			"acquire": func() error {
				return c.Do(within(t, 4*time.Second), acquireOp("c", 1, 9), &res[0])
			},
			"batch": func() error {
				c.DoAll(within(t, 4*time.Second), batch, res)
				return errors.Join(res[0].Err, res[1].Err)
			},
		} {
			err := try()
			_, _, line := c.Room()
			var later *twotier.RetryError
			if !errors.As(err, &later) || !errors.Is(err, twotier.ErrBehind) {
				t.Fatalf("%s: %v", name, err)
			}
			// The first guess at the pace of a store fades.
			want := time.Duration(line) * 100 * time.Millisecond
			if later.After > want+time.Second || later.After < want*3/4 {
				t.Errorf("%s, %d wait: again after %v, want about %v", name, line,
					later.After, want)
			}
		}
		waiting.Wait()
	})
}

// TestRoomIsGrantedToAsManyAsThereIsFor: many operations wait for room. It checks how many were let
// in by the time the next exchange is answered.
func TestRoomIsGrantedToAsManyAsThereIsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := openHeld(t, time.Second)
		release := sync.OnceFunc(func() { close(s.answer) })
		defer release()
		most := c.MostRoom() // less, as the store turns out to be slow
		var callers sync.WaitGroup
		for i := range 500 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Hour)
				defer cancel()
				if err := c.Do(ctx, addOp(fmt.Sprint("k", i), 1, twotier.AckMemory),
					new(twotier.Result)); err != nil {
					t.Error(err)
				}
			})
		}
		for range 100 {
			synctest.Wait()
			if owed, granted, _ := c.Room(); owed+granted > 2*most {
				t.Fatalf("%d keys wait for the store and %d more may: there is room for %d",
					owed, granted, most)
			}
			s.answer <- struct{}{}
			time.Sleep(time.Second)
		}
		release()
		callers.Wait()
	})
}

// TestRoomOfThoseWhoLeave: operations give up at the moment when there is room again.
func TestRoomOfThoseWhoLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := openHeld(t, time.Millisecond)
		for round := range 200 {
			var callers sync.WaitGroup
			for i := range 4 {
				callers.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
					defer cancel()
					key := keyIn(twotier.Placement{Partitions: 2}, 1, fmt.Sprint(round, "-",
						i, "-"))
					// It makes no difference whether there was room.
					_ = c.Do(ctx, addOp(key, 1, twotier.AckMemory), new(twotier.Result))
				})
			}
			time.Sleep(3 * time.Second) // three quarters of their time
			s.answer <- struct{}{}
			callers.Wait()
			for owed := int64(1); owed > 0; owed, _, _ = c.Room() {
				select {
				case s.answer <- struct{}{}:
				case <-time.After(100 * time.Millisecond):
				}
			}
			if _, granted, waiting := c.Room(); granted != 0 || waiting != 0 {
				t.Fatalf("at rest %d operations have room and %d wait for it", granted, waiting)
			}
			add(t, c, "first", 1, 0)
			time.Sleep(time.Second)
		}
		close(s.answer)
	})
}
