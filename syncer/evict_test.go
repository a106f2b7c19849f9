package syncer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// slowKey is a store that is slow to read one key.
type slowKey struct {
	*embedded.Store
	key string
}

func (s slowKey) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		for i := range r.Keys {
			if string(r.Keys[i].Key) == s.key {
				time.Sleep(8 * time.Second)
			}
		}
	}
	s.Store.Exchange(ctx, rounds)
}

// TestWhoHasWaitedEvictsWhatIsIdle has an operation wait for its key, and then need room for it.
// The key that another operation has used meanwhile stays in memory. An unused one is evicted.
func TestWhoHasWaitedEvictsWhatIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, syncer.Options{
			Store:     struct{ syncer.Store }{slowKey{embedded.New(embedded.Options{}), "late"}},
			Placement: twotier.Placement{Partitions: 1}, Exchanges: 1, RoundTimeout: time.Minute,
			FlushInterval: 50 * time.Millisecond,
			Namespaces:    map[string]syncer.Namespace{twotier.DefaultNamespace: {MaxKeys: 4}}})
		for i := range 3 {
			add(t, c, fmt.Sprint("idle-", i), 1, 0)
		}
		add(t, c, "used", 1, 0)
		time.Sleep(time.Second)
		done := make(chan error)
		go func() {
			done <- c.Do(context.Background(), acquireOp("late", 1, 5), new(twotier.Result))
		}()
		for range 79 {
			time.Sleep(100 * time.Millisecond)
			add(t, c, "used", 1, 0)
		}
		time.Sleep(50 * time.Millisecond) // it is flushed
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !c.Held(nil, []byte("late")).Found || !c.Held(nil, []byte("used")).Found {
			t.Error("the key in use had to make room, and not one that was idle for 9 s")
		}
	})
}
