package routing_test

import (
	"errors"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
)

// batch runs operations on keys of the named nodes.
func (b *bed) batch(t *testing.T, ops ...string) []twotier.Result {
	t.Helper()
	list := make([]twotier.Op, len(ops))
	for i, keys := range ops {
		list[i] = *b.op(twotier.Acquire, strings.Fields(keys)...)
	}
	res := make([]twotier.Result, len(ops))
	b.DoAll(t.Context(), list, res)
	return res
}

// TestBatchGoesToEachOwner sends each owner one message, in batch order.
func TestBatchGoesToEachOwner(t *testing.T) {
	b := newBed(t)
	for i, res := range b.batch(t, "a", "b", "c", "b1", "a1", "b") {
		want := []twotier.Source{
			twotier.SourceMemory, twotier.SourceOwner, twotier.SourceOwner, twotier.SourceOwner,
			twotier.SourceMemory, twotier.SourceOwner,
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

// TestBatchKeepsTheOrderOfAKey covers an operation with several owners: earlier operations on its
// keys run first, later ones wait for it.
func TestBatchKeepsTheOrderOfAKey(t *testing.T) {
	b := newBed(t)
	b.batch(t, "b", "a b", "b", "c")
	told := b.told()
	before, after, ok := strings.Cut(told, "several [a[0] b[1]]; ")
	if !ok || strings.Count(before, "b b;") != 1 || strings.Count(after, "b b;") != 1 {
		t.Errorf("was told %q", told)
	}
}

// TestBatchKeepsTheOrderOfABorrowedKey counts a borrowed key and then takes the count back, which
// only the owner can do: the owner executes both.
func TestBatchKeepsTheOrderOfABorrowedKey(t *testing.T) {
	b := newBed(t)
	b.borrowed = map[string]bool{string(b.key("b")): true}
	add, take := *b.op(twotier.Add, "b"), *b.op(twotier.Add, "b")
	take.Checks[0].N = -1
	b.DoAll(t.Context(), []twotier.Op{add, take}, make([]twotier.Result, 2))
	if told := b.told(); strings.Contains(told, "local") || !strings.Contains(told, "b b; b b; ") {
		t.Errorf("was told %q", told)
	}
	b.DoAll(t.Context(), []twotier.Op{add, add}, make([]twotier.Result, 2))
	if told := b.told(); !strings.Contains(told, "local b; local b; ") {
		t.Errorf("was told %q: a batch without taking back relies on what is borrowed", told)
	}
}

// TestBatchOfSeveralOwners runs acquires over several owners together: the ones with a key of this
// node here, the others in one message to each coordinator. A failed one is retried alone.
func TestBatchOfSeveralOwners(t *testing.T) {
	b := newBed(t)
	b.errs["several"] = []error{nil, twotier.ErrNotOwner}
	b.errs["c coordinates"] = []error{rpc.ErrUnreachable}
	res := b.batch(t, "a b", "b1 c1", "c b2", "a1 c2")
	for i := range res {
		if res[i].Err != nil || !res[i].Allowed {
			t.Errorf("operation %d: %+v", i, res[i])
		}
	}
	told := b.told()
	for _, want := range []string{"b coordinates b1; ", "c coordinates c; ",
		"several [a[0] b[1]]; several [a[0] c[1]]; ", "several [b[1] c[0]]; "} {
		if strings.Count(told, want) != 1 {
			t.Errorf("was told %q, want %q once", told, want)
		}
	}
	if n := strings.Count(told, "several [a[0] c[1]]; "); n != 2 {
		t.Errorf("was told %q: an acquire that nobody decided was run %d times", told, n)
	}
}

// TestBatchWithFailures retries operations that an owner did not accept, and leaves the rest alone.
func TestBatchWithFailures(t *testing.T) {
	b := newBed(t)
	b.errs["b"] = []error{rpc.ErrUnreachable, nil, twotier.ErrOverload}
	b.errs["local"] = []error{twotier.ErrNotOwner, twotier.ErrFull}
	res := b.batch(t, "a", "b", "b1", "b", "a1")
	for i, want := range []error{nil, nil, nil, twotier.ErrOverload, nil} {
		if !errors.Is(res[i].Err, want) || want == nil && res[i].Err != nil {
			t.Errorf("operation %d: %v, want %v", i, res[i].Err, want)
		}
	}
	told := b.told()
	// Retries for different nodes run concurrently, so their lines come in any order.
	for want, times := range map[string]int{
		"fallback b; ": 1, "locate; ": 1, "local a; ": 2, "redis a1; ": 1} {
		if strings.Count(told, want) != times {
			t.Errorf("was told %q, want %q %d times", told, want, times)
		}
	}
	if strings.Index(told, "locate; ") > strings.LastIndex(told, "local a; ") {
		t.Errorf("was told %q, which asks again before it locates", told)
	}
}

// TestBatchInRedis runs a batch in Redis in one call, or at the owners if the mode changes
// meanwhile.
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

// TestBatchSavesForwards answers from remembered refusals.
func TestBatchSavesForwards(t *testing.T) {
	b := newBed(t)
	b.remember = true
	if res := b.batch(t, "b"); res[0].Source != twotier.SourceNear || b.told() != "" {
		t.Errorf("source %q, was told %q", res[0].Source, b.told())
	}
}

// TestBatchWithBorrowedKeys sends operations to the owners of the other keys. Operations that can't
// be decided there go to all owners, together and in batch order.
func TestBatchWithBorrowedKeys(t *testing.T) {
	b := newBed(t)
	borrowing("b")(b)
	b.errs["local"] = []error{nil, twotier.ErrNotOwner, twotier.ErrNotOwner}
	b.errs["c"] = []error{twotier.ErrNotOwner}
	for i, res := range b.batch(t, "a b", "a1 b", "b", "c b", "c b") {
		if res.Err != nil {
			t.Errorf("operation %d: %v", i, res.Err)
		}
	}
	told := b.told()
	for want, times := range map[string]int{"local a; ": 1, "local a1; ": 1, "local b; ": 1,
		"c c; ": 2, "several [a[0] b[1]]; ": 1, "c coordinates c; ": 1, "b b; ": 1, "locate": 0} {
		if strings.Count(told, want) != times {
			t.Errorf("was told %q, want %q %d times", told, want, times)
		}
	}
}
