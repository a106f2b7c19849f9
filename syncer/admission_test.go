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
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

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
