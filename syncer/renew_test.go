package syncer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// TestRenewedHandoff: a handoff is interrupted while the store is down. Once it is renewed, no
// counter decides, not even in place of the owner, and a second attempt hands over everything.
func TestRenewedHandoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := embedded.New(embedded.Options{})
		store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
		opt := syncer.Options{Store: store, Now: (&clock{now: t0}).Now,
			Placement: twotier.Placement{Partitions: 1}}
		a := open(t, opt)
		opt.NotOwner, opt.Store = true, inner
		b := open(t, opt)
		add(t, a, "k", 1, 0)
		flush(t, a)
		store.SetDown(true)
		add(t, a, "k", 10, 0)
		if err := a.BeginHandoff(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		_, cursor, err := a.HandoffPage(0, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.StopOwning(0)
		a.RestartHandoff(0)
		for _, nonOwner := range []bool{false, true} {
			op := acquireOp("k", 1, 100)
			op.AllowNonOwner = nonOwner
			if err := a.Do(t.Context(), op, new(twotier.Result)); !errors.Is(err,
				twotier.ErrNotOwner) {
				t.Errorf("in place of the owner %v: %v", nonOwner, err)
			}
		}
		if err := a.BeginHandoff(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if cursor != 0 {
			if _, _, err := a.HandoffPage(0, cursor, 1); err == nil {
				t.Error("a cursor of the first attempt has a page in the second")
			}
		}
		b.ImportHandoff(pages(t, a, 0, 1<<20))
		if err := a.FinishHandoff(0); err != nil {
			t.Error(err)
		}
		if err := a.ResetKey(t.Context(), nil, []byte("k")); !errors.Is(err, twotier.ErrNotOwner) {
			t.Errorf("the old owner resets a key: %v", err)
		}
		if got := count(t, b, "k", 60_000); got != 11 {
			t.Errorf("the new owner counts %d, want 11", got)
		}
		flush(t, b)
		store.SetDown(false)
		time.Sleep(10 * time.Second)
		flush(t, a)
		sum := int64(0)
		for _, got := range inner.Get(0, nil, []byte("k")) {
			sum += got.N
		}
		if sum != 11 {
			t.Errorf("the store holds %d, want 11", sum)
		}
	})
}
