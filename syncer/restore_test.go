package syncer_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestAKeyRefusedDuringARestorationIsToldAgain: a store loses everything, then refuses a key that
// is being restored, as Redis does if the name has a value of another type for a moment.
func TestAKeyRefusedDuringARestorationIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusals atomic.Int64
		store := &strict{Store: embedded.New(embedded.Options{}), key: "bad",
			refuses: func(r *syncer.Round) bool { return r.Republish && refusals.Add(-1) >= 0 }}
		clk := &clock{now: t0}
		c := open(t, syncer.Options{Store: store, Now: clk.Now, VerifyInterval: time.Second,
			Placement: twotier.Placement{Partitions: 1}})
		for _, key := range []string{"a", "bad", "c"} {
			add(t, c, key, 7, 0)
		}
		flush(t, c)
		refusals.Store(2)
		store.Flush()
		time.Sleep(10 * time.Second)
		if left := refusals.Load(); left > 0 {
			t.Fatalf("nothing was restored: %d", left)
		}
		for _, key := range []string{"a", "bad", "c"} {
			if got := count(t, c, key, 60_000); got != 7 {
				t.Errorf("%s counts %d", key, got)
			}
			if got := store.Get(0, nil, []byte(key)); len(got) != 1 {
				t.Errorf("%s is in the store as %+v", key, got)
			}
		}
	})
}

// pausing applies parts of a restoration, reports their keys, and answers when allowed.
type pausing struct {
	*embedded.Store
	restored chan string
	answer   chan struct{}
}

func (s pausing) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.Store.Exchange(ctx, rounds)
	if r := rounds[0]; r.Republish {
		s.restored <- string(r.Keys[0].Key)
		<-s.answer
	}
}

// TestForgetDuringARestoration resets a key while a loss is being restored, before the key is sent
// or while the answer is on its way. It stays reset, and the others are restored.
func TestForgetDuringARestoration(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for name, which := range map[string]func(told string) string{
		"on its way": func(told string) string { return told },
		"not yet told": func(told string) string {
			return keys[(slices.Index(keys, told)+1)%len(keys)]
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testForgetDuringARestoration(t, keys, which) })
		})
	}
}

func testForgetDuringARestoration(t *testing.T, keys []string, which func(told string) string) {
	store := pausing{embedded.New(embedded.Options{}), make(chan string), make(chan struct{})}
	clk, one := &clock{now: t0}, twotier.Placement{Partitions: 1}
	c := open(t, syncer.Options{Store: store, Now: clk.Now, VerifyInterval: time.Second,
		MaxRoundKeys: 1, Placement: one})
	for _, key := range keys {
		add(t, c, key, 7, 0)
	}
	flush(t, c)
	store.Flush()
	reset := which(<-store.restored)
	forgotten := make(chan error)
	go func() { forgotten <- c.ResetKey(context.Background(), nil, []byte(reset)) }()
	synctest.Wait()
	for range keys[1:] {
		store.answer <- struct{}{}
		<-store.restored // so the previous answer was applied
		if got := count(t, c, reset, 60_000); got != 0 {
			t.Errorf("it is reset, and counts %d", got)
		}
	}
	store.answer <- struct{}{}
	if err := <-forgotten; err != nil {
		t.Error(err)
	}
	for _, key := range keys {
		want := int64(7)
		if key == reset {
			want = 0
		}
		if got, stored := count(t, c, key, 60_000), store.Get(0, nil, []byte(key)); got != want ||
			len(stored) > 0 != (want > 0) {
			t.Errorf("%s counts %d, and is in the store as %v", key, got, stored)
		}
	}
}
