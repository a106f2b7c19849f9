package room_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/syncer/internal/room"
)

// crowd is operations that wait for room, with the ends of their waits in order.
type crowd struct {
	*room.Room
	flushes atomic.Int64 // that the room has requested
	mu      sync.Mutex
	ends    []string
}

func newCrowd() *crowd {
	q := &crowd{}
	q.Room = room.New(64*time.Second, slowTimeout, func() { q.flushes.Add(1) })
	return q
}

// join has an operation wait until ctx is done.
func (q *crowd) join(ctx context.Context, name string, c room.Class) {
	go func() {
		out := q.Wait(ctx, c, 1000*time.Hour)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ends = append(q.ends, name+" "+text(out))
	}()
	synctest.Wait()
}

func text(out room.Outcome) string {
	return map[room.Outcome]string{room.Granted: "granted", room.Retry: "retry",
		room.Refused: "refused"}[out]
}

// ended compares the waits that have ended since the last call.
func (q *crowd) ended(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Equal(q.ends, want) {
		t.Errorf("the waits ended: %q, want %q", q.ends, want)
	}
	q.ends = nil
}

// TestWhoGivesUpReturnsTheRoom: operations give up at the moment when room becomes free.
func TestWhoGivesUpReturnsTheRoom(t *testing.T) {
	outcomes := map[room.Outcome]int{}
	for i := range 300 {
		synctest.Test(t, func(t *testing.T) {
			m, ctx, most := newRoom(), t.Context(), time.Second
			if i%2 == 0 {
				timed, cancel := context.WithTimeout(ctx, most)
				defer cancel()
				ctx, most = timed, time.Hour
			}
			m.AddOwed(4)
			go func() {
				time.Sleep(time.Second)
				m.AddOwed(-1)
				m.Grant()
			}()
			out := m.Wait(ctx, room.KnownKey, most)
			outcomes[out]++
			synctest.Wait()
			if out == room.Granted {
				m.Release()
			}
			if s := m.Stats(); s.Granted != 0 || s.Waiting != 0 || !m.HasRoom(room.KnownKey) {
				t.Errorf("%s, and then %+v", text(out), s)
			}
		})
	}
	t.Logf("%d had room, %d gave up", outcomes[room.Granted], outcomes[room.Refused])
}

// TestClosedRoom lets every operation check again: the one that waits, and later ones.
func TestClosedRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, began := newCrowd(), time.Now()
		q.AddOwed(100)
		q.join(t.Context(), "known", room.KnownKey)
		q.join(t.Context(), "new", room.NewKey)
		q.Close()
		synctest.Wait()
		slices.Sort(q.ends) // they are independent of each other
		q.ended(t, "known retry", "new retry")
		q.join(t.Context(), "later", room.NewKey)
		q.ended(t, "later retry")
		q.Close()
		if s := q.Stats(); time.Since(began) > 0 || s.Granted != 0 || s.Waiting != 0 ||
			s.Refused != 0 {
			t.Errorf("after %v: %+v", time.Since(began), s)
		}
	})
}

// TestWaitWithoutTime is refused at once, and makes nobody flush.
func TestWaitWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, began := newCrowd(), time.Now()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, out := range []room.Outcome{
			q.Wait(t.Context(), room.KnownKey, 0),
			q.Wait(t.Context(), room.KnownKey, -time.Second),
			q.Wait(over, room.KnownKey, time.Hour),
		} {
			if out != room.Refused {
				t.Errorf("the outcome is %s", text(out))
			}
		}
		if n := q.Stats().Refused; n != 3 || q.flushes.Load() != 0 || time.Since(began) > 0 {
			t.Errorf("%d were refused after %v, with %d flushes", n, time.Since(began),
				q.flushes.Load())
		}
	})
}

// TestExpectedBehindTheLines: an estimate counts the operations that are served first.
func TestExpectedBehindTheLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newCrowd()
		q.AddOwed(4)
		for i := range 10 {
			q.join(t.Context(), "known", room.KnownKey)
			if i < 3 {
				q.join(t.Context(), "new", room.NewKey)
			}
		}
		known, isNew := q.ExpectedWait(room.KnownKey), q.ExpectedWait(room.NewKey)
		if known.Round(time.Millisecond) != 11*time.Second ||
			isNew.Round(time.Millisecond) != 16*time.Second {
			t.Errorf("a known key is served after %v, a new one after %v; want 11 s and 16 s",
				known, isNew)
		}
		q.AddOwed(-1)
		if q.Grant(); q.ExpectedWait(room.KnownKey).Round(time.Millisecond) != 10*time.Second {
			t.Errorf("granted room is not counted: %v", q.ExpectedWait(room.KnownKey))
		}
		q.Close()
	})
}
