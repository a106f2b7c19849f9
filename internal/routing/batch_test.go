package routing_test

import (
	"errors"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/syncer"
)

// batch carries out operations on keys of some nodes.
func (b *bed) batch(t *testing.T, ops ...string) []syncer.Result {
	t.Helper()
	list := make([]syncer.Op, len(ops))
	for i, keys := range ops {
		list[i] = *b.op(syncer.Acquire, strings.Fields(keys)...)
	}
	res := make([]syncer.Result, len(ops))
	b.DoAll(t.Context(), list, res)
	return res
}

// TestBatchGoesToEachOwner in one message, in the order of the batch.
func TestBatchGoesToEachOwner(t *testing.T) {
	b := newBed(t)
	for i, res := range b.batch(t, "a", "b", "c", "b1", "a1", "b") {
		want := []syncer.Source{
			syncer.SourceMemory, syncer.SourceOwner, syncer.SourceOwner, syncer.SourceOwner,
			syncer.SourceMemory, syncer.SourceOwner,
		}[i]
		if res.Err != nil || res.Source != want {
			t.Errorf("operation %d: source %q, %v, want %q", i, res.Source, res.Err, want)
		}
	}
	told := b.told()
	for _, want := range []string{"b b; b b1; b b; ", "c c; ", "local a; local a1; "} {
		if !strings.Contains(told, want) {
			t.Errorf("was told %q, which lacks %q", told, want)
		}
	}
}

// TestBatchKeepsTheOrderOfAKey where an operation has several owners: what comes before it in the
// batch is carried out before, and what comes after waits for it.
func TestBatchKeepsTheOrderOfAKey(t *testing.T) {
	b := newBed(t)
	b.batch(t, "b", "a b", "b", "c")
	told := b.told()
	before, after, ok := strings.Cut(told, "several [a[0] b[1]]; ")
	if !ok || strings.Count(before, "b b;") != 1 || strings.Count(after, "b b;") != 1 {
		t.Errorf("was told %q", told)
	}
}

// TestBatchWithFailures: what one owner did not take goes on by itself, the rest is as it is.
func TestBatchWithFailures(t *testing.T) {
	b := newBed(t)
	b.errs["b"] = []error{rpc.ErrUnreachable, nil, syncer.ErrOverload}
	b.errs["local"] = []error{syncer.ErrNotOwner, syncer.ErrFull}
	res := b.batch(t, "a", "b", "b1", "b", "a1")
	for i, want := range []error{nil, nil, nil, syncer.ErrOverload, nil} {
		if !errors.Is(res[i].Err, want) || want == nil && res[i].Err != nil {
			t.Errorf("operation %d: %v, want %v", i, res[i].Err, want)
		}
	}
	told := b.told()
	for _, want := range []string{"fallback b; ", "locate; local a; ", "redis a1; "} {
		if strings.Count(told, want) != 1 {
			t.Errorf("was told %q, want %q once", told, want)
		}
	}
}

// TestBatchInRedis goes there in one call, or to the owners if the mode changes just then.
func TestBatchInRedis(t *testing.T) {
	b := newBed(t)
	b.redis = true
	b.batch(t, "a", "b")
	if b.told() != "redis a; redis b; " {
		t.Errorf("was told %q", b.told())
	}
	b.story, b.errs["changed"] = nil, []error{errors.New("changed")}
	b.batch(t, "a")
	if b.told() != "local a; " {
		t.Errorf("was told %q after the mode has changed", b.told())
	}
}

// TestBatchSavesForwards of what is leased, or remembered as refused.
func TestBatchSavesForwards(t *testing.T) {
	b := newBed(t)
	b.leased = true
	b.errs["beside"] = []error{nil, syncer.ErrOverload}
	res := b.batch(t, "b", "b1")
	if res[0].Err != nil || !errors.Is(res[1].Err, syncer.ErrOverload) ||
		b.told() != "beside b; beside b1; " {
		t.Errorf("%v, %v, was told %q", res[0].Err, res[1].Err, b.told())
	}
	b.leased, b.remember, b.story = false, true, nil
	if res := b.batch(t, "b"); res[0].Source != syncer.SourceNear || b.told() != "" {
		t.Errorf("source %q, was told %q", res[0].Source, b.told())
	}
}
