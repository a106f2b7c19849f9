package syncer_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// heldLane answers writes to odd partitions only when allowed.
type heldLane struct {
	*embedded.Store
	answer chan struct{}
}

func (s heldLane) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.Store.Exchange(ctx, rounds)
	for _, r := range rounds {
		if r.Seq > 0 && r.Partition%2 == 1 {
			<-s.answer
			return
		}
	}
}

// openHeldLane returns a counter with two flushers. The flusher of odd partitions has no room until
// release.
func openHeldLane(t *testing.T, place twotier.Placement) (c *syncer.Counter, release func()) {
	s := heldLane{embedded.New(embedded.Options{}), make(chan struct{})}
	c = open(t, syncer.Options{Store: s, Placement: place, Exchanges: 2,
		MaxLag:        time.Millisecond, // room for one key
		FlushInterval: 10 * time.Millisecond, VerifyInterval: time.Hour, RoundTimeout: time.Hour})
	add(t, c, keyIn(place, 1, "first"), 1, 0)
	time.Sleep(time.Second)
	release = sync.OnceFunc(func() { close(s.answer) })
	t.Cleanup(release)
	return c, release
}

// TestABreachThatWaitsForRoomIsCounted breaches a limit with count_denied. The operation does
// nothing before there is room for all of it. If its ban had started meanwhile, it would find that
// ban, and count nothing.
func TestABreachThatWaitsForRoomIsCounted(t *testing.T) {
	place := twotier.Placement{Partitions: 4}
	roomy, full := keyIn(place, 2, "k"), keyIn(place, 3, "k")
	for name, test := range map[string]struct{ breached, beside string }{
		"there is room for the ban":    {roomy, full},
		"there is no room for the ban": {full, roomy},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, release := openHeldLane(t, place)
				op := banned(test.breached, 2, 60_000, 0, limits(60_000, 1))
				op.CountDenied = true
				op.Checks = append(op.Checks, twotier.Check{Key: []byte(test.beside), N: 1,
					Limits: limits(60_000, 9)})
				var res twotier.Result
				told := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					defer cancel()
					told <- c.Do(ctx, &op, &res)
				}()
				synctest.Wait()
				if _, _, waiting := c.Room(); waiting != 1 {
					t.Fatalf("%d operations wait for room", waiting)
				}
				ask := banned(test.breached, 1, 60_000, 0, limits(60_000, 1))
				ask.DryRun = true
				if early := do(t, c, ask); !early.Allowed {
					t.Errorf("while the breach waits: %+v", early)
				}
				release()
				if err := <-told; err != nil || res.Allowed || res.Checks[1].TS == 0 {
					t.Fatalf("%+v, %v; want a ban to start", res, err)
				}
				a, b := count(t, c, test.breached, 60_000), count(t, c, test.beside, 60_000)
				if a != 2 || b != 1 {
					t.Errorf("counted %d and %d, want 2 and 1", a, b)
				}
				if late := do(t, c, ask); late.Allowed || !ask.Banned(&late) {
					t.Errorf("after the breach: %+v", late)
				}
			})
		})
	}
}
