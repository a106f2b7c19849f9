package syncer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/syncer"
)

// TestCatchUpAfterAHandover hands a partition over while the store is down. Whoever took it over
// answers for what it was given; the one that gave it has nothing left to wait for.
func TestCatchUpAfterAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, list, stores := ownerAndOther(t)
		down := func(is bool) {
			for _, s := range stores {
				s.SetDown(is)
			}
		}
		check := syncer.Check{Key: []byte("k")}
		down(true)
		add(t, list[0], "k", 1, 0)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := list[0].CatchUp(ctx, &check); !errors.Is(err, syncer.ErrUnavailable) ||
			time.Since(began) > 0 {
			t.Errorf("while the store is known to be down, after %v: %v", time.Since(began), err)
		}
		hand(t, list[0], list[1], 0, 1<<20)
		down(false)
		flush(t, list[1])
		for i, c := range list {
			if err := c.CatchUp(t.Context(), &check); err != nil {
				t.Errorf("counter %d: %v", i, err)
			}
		}
	})
}
