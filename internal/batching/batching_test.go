package batching_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/testing/must"
)

var (
	errDrained = errors.New("drained")
	errClosed  = errors.New("closed")
	errLost    = errors.New("lost")
)

// call counts how often it was sent and finished.
type call struct {
	batching.Call
	ops, bytes     int
	sent, finished atomic.Int32
}

func (c *call) Finish(err error) {
	c.finished.Add(1)
	c.Call.Finish(err)
}

func (c *call) Size() (ops, bytes int) { return c.ops, c.bytes }

func newCall(ops, bytes int) *call {
	c := &call{ops: ops, bytes: bytes}
	c.Reset()
	return c
}

// finish sends a batch and answers it.
func finish(batch []*call) {
	for _, c := range batch {
		c.sent.Add(1)
		c.Finish(nil)
	}
}

// TestWhatWaitsGoesOutTogether holds up a worker: calls that arrive meanwhile form one batch, up to
// its bounds, in order of arrival.
func TestWhatWaitsGoesOutTogether(t *testing.T) {
	for _, test := range []struct {
		name       string
		opt        batching.Options
		ops, bytes int
		want       string
	}{
		{"no bound", batching.Options{}, 1, 1, "[1 6]"},
		{"calls", batching.Options{Ops: 4}, 1, 1, "[1 4 2]"},
		{"larger than a batch", batching.Options{Ops: 4}, 9, 1, "[1 1 1 1 1 1 1]"},
		{"filled by the last", batching.Options{Ops: 4}, 3, 1, "[1 2 2 2]"},
		{"bytes", batching.Options{Bytes: 100}, 1, 50, "[1 2 2 2]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			test.opt.Waiting = 10
			q := batching.New[*call](test.opt)
			var sizes []int
			var order []*call
			var worker sync.WaitGroup
			worker.Go(func() {
				q.Run(nil, func(batch []*call) {
					time.Sleep(time.Second)
					sizes = append(sizes, len(batch))
					order = append(order, batch...)
					finish(batch)
				})
			})
			calls := make([]*call, 7)
			for i := range calls {
				calls[i] = newCall(test.ops, test.bytes)
				must.Succeed(t, q.Put(calls[i]))
				if i == 0 {
					synctest.Wait() // the worker has it
				}
			}
			q.Close(errClosed)
			worker.Wait()
			if got := fmt.Sprint(sizes); got != test.want {
				t.Errorf("%s: batches of %s, want %s", test.name, got, test.want)
			}
			for i := range calls {
				if order[i] != calls[i] {
					t.Errorf("%s: call %d was not sent in its turn", test.name, i)
				}
			}
		})
	}
}

// TestWithdrawnCallsAreNotSent waits for a call until the time or the context ends, while another
// is being sent.
func TestWithdrawnCallsAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := batching.New[*call](batching.Options{Waiting: 10})
		go q.Run(nil, func(batch []*call) {
			time.Sleep(time.Minute)
			finish(batch)
		})
		put := func() *call {
			c := newCall(1, 1)
			must.Succeed(t, q.Put(c))
			synctest.Wait()
			return c
		}
		sent := put()
		if o, err := sent.Wait(t.Context(), time.Second); o != batching.Left ||
			!errors.Is(err, batching.ErrTime) {
			t.Errorf("being sent: %v, %v", o, err)
		}
		late := put()
		if o, err := late.Wait(t.Context(), time.Second); o != batching.Withdrawn ||
			!errors.Is(err, batching.ErrTime) {
			t.Errorf("late: %v, %v", o, err)
		}
		cut, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		left := put()
		if o, err := left.Wait(cut, batching.Forever); o != batching.Withdrawn ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("left: %v, %v", o, err)
		}
		last := put()
		if o, err := last.Wait(t.Context(), batching.Forever); o != batching.Finished ||
			err != nil {
			t.Errorf("last: %v, %v", o, err)
		}
		q.Close(errClosed)
		if late.sent.Load() != 0 || left.sent.Load() != 0 || last.sent.Load() != 1 {
			t.Error("what was withdrawn is sent, or what was not is not")
		}
	})
}

// TestBefore puts in another call before the worker gathers its batch.
func TestBefore(t *testing.T) {
	var q *batching.Queue[*call]
	second := newCall(1, 1)
	q = batching.New[*call](batching.Options{Waiting: 2, Before: func() {
		if err := q.Put(second); err != nil {
			t.Error(err)
		}
		q.Close(errClosed)
	}})
	must.Succeed(t, q.Put(newCall(1, 1)))
	q.Run(nil, func(batch []*call) {
		if len(batch) != 2 || batch[1] != second {
			t.Errorf("a batch of %d", len(batch))
		}
	})
}

// TestDrain finishes all waiting calls with the reason, except for a withdrawn one.
func TestDrain(t *testing.T) {
	q := batching.New[*call](batching.Options{Waiting: 2})
	waits, left := newCall(1, 1), newCall(1, 1)
	for _, c := range []*call{waits, left} {
		must.Succeed(t, q.Put(c))
	}
	if o, _ := left.Wait(t.Context(), 0); o != batching.Withdrawn {
		t.Error(o)
	}
	q.FailWaiting(errDrained)
	if o, err := waits.Wait(t.Context(), batching.Forever); o != batching.Finished ||
		!errors.Is(err, errDrained) {
		t.Errorf("%v, %v", o, err)
	}
	if n := left.finished.Load(); n != 0 {
		t.Errorf("what was withdrawn was finished %d times", n)
	}
}

// TestCallsThatComeTooLate puts in a call just after the queue was drained, and just after the last
// worker has ended: neither call is stranded in the queue.
func TestCallsThatComeTooLate(t *testing.T) {
	q := batching.New[*call](batching.Options{Waiting: 1,
		Refused: func() error { return errDrained }})
	c := newCall(1, 1)
	must.Succeed(t, q.Put(c))
	if o, err := c.Wait(t.Context(), time.Minute); o != batching.Finished ||
		!errors.Is(err, errDrained) {
		t.Errorf("drained: %v, %v", o, err)
	}
	q = batching.New[*call](batching.Options{Waiting: 1, Refused: func() error {
		q.Close(errClosed) // the call is in by now
		return nil
	}})
	if err := q.Put(newCall(1, 1)); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestFull puts in more calls than may wait. A call that may wait for room gets in once there is
// some. None gets in once the queue is closed; calls already in it are sent.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := batching.New[*call](batching.Options{Waiting: 1, Ops: 1})
		waits, patient := newCall(1, 1), newCall(1, 1)
		must.Succeed(t, q.Put(waits))
		if err := q.Put(newCall(1, 1)); !errors.Is(err, batching.ErrFull) {
			t.Errorf("full: %v", err)
		}
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.PutWait(hasty, newCall(1, 1)); !errors.Is(err, batching.ErrFull) {
			t.Errorf("waited for room: %v", err)
		}
		room := make(chan error)
		go func() { room <- q.PutWait(t.Context(), patient) }()
		synctest.Wait()
		var worker sync.WaitGroup
		worker.Go(func() { q.Run(nil, finish) })
		if err := <-room; err != nil {
			t.Errorf("there is room: %v", err)
		}
		synctest.Wait()
		q.Close(errClosed)
		worker.Wait()
		for _, put := range []func(*call) error{q.Put,
			func(c *call) error { return q.PutWait(t.Context(), c) }} {
			if err := put(newCall(1, 1)); !errors.Is(err, errClosed) {
				t.Errorf("closed: %v", err)
			}
		}
		if waits.sent.Load() != 1 || patient.sent.Load() != 1 {
			t.Error("not all that waited was sent")
		}
	})
}

// TestStoppedWorkersLeaveTheQueue checks that a stopped worker leaves the calls to other workers.
func TestStoppedWorkersLeaveTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := batching.New[*call](batching.Options{Waiting: 1})
		stop := make(chan struct{})
		var worker sync.WaitGroup
		worker.Go(func() { q.Run(stop, finish) })
		close(stop)
		worker.Wait()
		c := newCall(1, 1)
		must.Succeed(t, q.Put(c))
		go q.Run(nil, finish)
		if o, err := c.Wait(t.Context(), batching.Forever); o != batching.Finished || err != nil {
			t.Errorf("%v, %v", o, err)
		}
		q.Close(errClosed)
	})
}

// TestModel has callers of little and much patience, workers that lose answers, refusals that come
// and go, and an end at any time. Calls that were withdrawn, drained or not accepted were never
// sent, all others at most once, and no caller waits forever.
func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var refused atomic.Bool
			q := batching.New[*call](batching.Options{Waiting: 1 + rnd.IntN(20), Ops: rnd.IntN(10),
				Refused: func() error {
					if refused.Load() {
						return errDrained
					}
					return nil
				}})
			var all sync.WaitGroup
			for worker := range 1 + rnd.IntN(3) {
				rnd := rand.New(rand.NewPCG(seed, uint64(10+worker)))
				all.Go(func() { q.Run(nil, func(batch []*call) { send(batch, rnd) }) })
			}
			for caller := range 10 {
				rnd := rand.New(rand.NewPCG(seed, uint64(20+caller)))
				all.Go(func() { ask(t, q, rnd) })
			}
			for range 20 {
				time.Sleep(upTo(rnd, 20*time.Millisecond))
				if refused.Store(rnd.IntN(2) == 0); refused.Load() {
					q.FailWaiting(errDrained)
				}
			}
			q.Close(errClosed)
			all.Wait()
		})
		if t.Failed() {
			t.Fatal("seed ", seed)
		}
	}
}

// send takes some time, and loses some answers.
func send(batch []*call, rnd *rand.Rand) {
	for _, c := range batch {
		c.sent.Add(1)
	}
	time.Sleep(upTo(rnd, 10*time.Millisecond))
	for _, c := range batch {
		if rnd.IntN(4) == 0 {
			c.Finish(errLost)
		} else {
			c.Finish(nil)
		}
	}
}

// ask makes calls until the queue is closed, and compares their outcomes with the number of times
// they were sent.
func ask(t *testing.T, q *batching.Queue[*call], rnd *rand.Rand) {
	for {
		time.Sleep(upTo(rnd, 5*time.Millisecond))
		c := newCall(1+rnd.IntN(3), 1)
		ctx, cancel := context.WithTimeout(context.Background(), upTo(rnd, 30*time.Millisecond))
		put := q.Put
		if rnd.IntN(2) == 0 {
			put = func(c *call) error { return q.PutWait(ctx, c) }
		}
		err := put(c)
		least, most := int32(0), int32(0)
		if err == nil {
			var o batching.Outcome
			o, err = c.Wait(ctx, upTo(rnd, 30*time.Millisecond))
			if o != batching.Withdrawn && !errors.Is(err, errDrained) {
				least, most = 1, 1
			}
		}
		cancel()
		if n := c.sent.Load(); n < least || n > most {
			t.Errorf("sent %d times, want %d to %d: %v", n, least, most, err)
		}
		if errors.Is(err, errClosed) {
			return
		}
	}
}

// upTo returns a random duration shorter than most.
func upTo(rnd *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(most)))
}

// BenchmarkQueue measures callers that wait for a worker that answers immediately.
func BenchmarkQueue(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			q := batching.New[*call](batching.Options{Waiting: 4096, Ops: 256})
			go q.Run(nil, finish)
			defer q.Close(errClosed)
			b.SetParallelism(callers)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				c := newCall(1, 1)
				for pb.Next() {
					c.Reset()
					if err := q.Put(c); err != nil {
						b.Error(err)
					}
					if _, err := c.Wait(context.Background(), batching.Forever); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
