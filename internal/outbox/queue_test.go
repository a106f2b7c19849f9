package outbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/outbox"
)

var errReceiver = errors.New("the receiver refuses")

// receiver takes batches, and refuses as many of the next ones as told.
type receiver struct {
	refuse  int
	tries   []time.Duration // since the first
	began   time.Time
	batches [][]int
}

func (r *receiver) send(_ context.Context, batch []int) (int, error) {
	if r.began.IsZero() {
		r.began = time.Now()
	}
	r.tries = append(r.tries, time.Since(r.began))
	if r.refuse > 0 {
		r.refuse--
		return 0, errReceiver
	}
	r.batches = append(r.batches, slices.Clone(batch))
	return len(batch), nil
}

// TestBatches: entries arrive in order, in batches of at most the bound, and an incomplete batch
// once it has waited for more.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r receiver
		q := outbox.New(outbox.Options[int]{Send: r.send, Most: 10, Batch: 3, Gather: time.Second})
		q.Open()
		for i := range 3 {
			q.Add(i)
		}
		synctest.Wait()
		q.Add(3)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if len(r.batches) != 1 {
			t.Errorf("%v, want the complete batch alone", r.batches)
		}
		q.Add(4)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if want := [][]int{{0, 1, 2}, {3, 4}}; !slices.EqualFunc(r.batches, want,
			slices.Equal[[]int]) {
			t.Errorf("%v, want %v", r.batches, want)
		}
		if lost := q.Close(t.Context()); lost != 0 || q.Sent() != 5 || q.Dropped() != 0 {
			t.Errorf("lost %d, sent %d, dropped %d", lost, q.Sent(), q.Dropped())
		}
	})
}

// TestAttempts: a batch is sent again after growing pauses, as often as allowed, and then dropped;
// the next one arrives.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := receiver{refuse: 3}
		q := outbox.New(outbox.Options[int]{Send: r.send, Most: 10, Attempts: 3})
		q.Open()
		q.Add(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.tries) != 3 || q.Dropped() != 1 {
			t.Fatalf("tries at %v, dropped %d", r.tries, q.Dropped())
		}
		for i, longest := range []time.Duration{time.Second, 2 * time.Second} {
			if pause := r.tries[i+1] - r.tries[i]; pause < longest/2 || pause > longest {
				t.Errorf("pause %d is %v, want %v to %v", i, pause, longest/2, longest)
			}
		}
		q.Add(2)
		synctest.Wait()
		if q.Sent() != 1 || q.Close(t.Context()) != 0 {
			t.Errorf("sent %d", q.Sent())
		}
	})
}

// TestFinalErrors are not tried again.
func TestFinalErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := receiver{refuse: 1}
		q := outbox.New(outbox.Options[int]{Send: r.send, Most: 10, Attempts: 3,
			IsFinal: func(err error) bool { return errors.Is(err, errReceiver) }})
		q.Open()
		q.Add(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.tries) != 1 || q.Dropped() != 1 {
			t.Errorf("tries at %v, dropped %d", r.tries, q.Dropped())
		}
		q.Close(t.Context())
	})
}

// TestFullQueue: an entry of which not all items fit is dropped whole.
func TestFullQueue(t *testing.T) {
	var r receiver
	q := outbox.New(outbox.Options[int]{Send: r.send, Most: 3})
	if !q.Add(1, 2) || q.Add(3, 4) || !q.Add(5) || q.Add(6) {
		t.Error("the bound does not hold")
	}
	if lost := q.Close(t.Context()); lost != 0 || q.Sent() != 3 || q.Dropped() != 2 || q.Add(7) {
		t.Errorf("lost %d, sent %d, dropped %d: %v", lost, q.Sent(), q.Dropped(), r.batches)
	}
}

// TestClose sends all that waits, once, and gives up a receiver that hangs when its time is over.
func TestClose(t *testing.T) {
	for _, mayHang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			released := make(chan struct{})
			q := outbox.New(outbox.Options[int]{Most: 10, Batch: 2, MayHang: mayHang,
				Send: func(ctx context.Context, _ []int) (int, error) {
					if mayHang {
						<-released
					} else {
						<-ctx.Done()
					}
					return 0, errReceiver
				}})
			q.Open()
			q.Add(1, 2, 3)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if lost, took := q.Close(ctx), time.Since(began); lost != 3 || took != time.Second {
				t.Errorf("may hang %v: lost %d after %v", mayHang, lost, took)
			}
			close(released)
		})
	}
}
