package syncer_test

import (
	"errors"
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
)

// TestWithoutAStoreNothingWaits counts, resets and closes without a store.
func TestWithoutAStoreNothingWaits(t *testing.T) {
	clk := &clock{now: t0}
	c := openAlone(t, syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: 2}})
	add(t, c, "k", 3, 0)
	op := acquireOp("k", 2, 5)
	op.Ack = twotier.AckStore
	for i, allowed := range []bool{true, false} {
		var res twotier.Result
		must.Succeed(t, c.Do(t.Context(), op, &res))
		if res.Allowed != allowed || res.Degraded || res.Source != twotier.SourceMemory {
			t.Errorf("acquire %d: %+v", i, res)
		}
	}
	must.Succeed(t, c.Flush(t.Context()))
	if s := c.Stats(); s.PendingBuckets != 0 || s.Keys != 1 || s.LoadsTotal != 0 ||
		s.UnflushedAge != 0 || s.BatchesOKTotal != 0 {
		t.Errorf("%+v", s)
	}
	must.Succeed(t, c.ResetKey(t.Context(), nil, []byte("k")))
	if got := count(t, c, "k", 60_000); got != 0 {
		t.Errorf("%d after a reset", got)
	}
	if err := c.BeginHandoff(t.Context(), 0); err == nil {
		t.Error("a partition can be handed over")
	}
	add(t, c, "k", 1, 0)
	must.Succeed(t, c.Close(t.Context()))
}

// TestFullNamespaceWithoutAStoreForgetsNoCounts adds a key to a namespace that has its most keys.
// It is refused, however long the others are idle, until the counts of one have left every window.
func TestFullNamespaceWithoutAStoreForgetsNoCounts(t *testing.T) {
	clk := &clock{now: t0}
	c := openAlone(t, syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: 4},
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {MaxKeys: 20}}})
	for i := range 20 {
		add(t, c, fmt.Sprint("k", i), 5, 0)
	}
	op := acquireOp("new", 1, 5)
	for _, later := range []int64{0, 3000, 3_600_000} {
		clk.set(clk.Now() + later)
		if err := c.Do(t.Context(), op, new(twotier.Result)); !errors.Is(err, twotier.ErrMaxKeys) {
			t.Errorf("%d ms later: %v", later, err)
		}
		for i := range 20 {
			if got := count(t, c, fmt.Sprint("k", i), 86_400_000); got != 5 {
				t.Errorf("%d ms later k%d has %d", later, i, got)
			}
		}
	}
	clk.set(clk.Now() + 90*86_400_000)
	must.Succeed(t, c.Do(t.Context(), op, new(twotier.Result)))
}
