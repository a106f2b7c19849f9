package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// TestNamespaceHasItsMostKeys floods one namespace. It stays within its bound, new keys take the
// place of idle ones, and other namespaces are not affected.
func TestNamespaceHasItsMostKeys(t *testing.T) {
	const most = 100
	var log strings.Builder
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: 8},
		Logger:     slog.New(slog.NewTextHandler(&log, nil)),
		Namespaces: map[string]syncer.Namespace{"few": {MaxKeys: most}}})
	count := func(ns, key string) error {
		op := twotier.Op{Checks: []twotier.Check{{NS: []byte(ns), Key: []byte(key), N: 1}}}
		return c.Do(context.Background(), &op, new(twotier.Result))
	}
	for i := range 3 * most {
		err := count("few", fmt.Sprint("a", i))
		if want := i >= most; errors.Is(err, twotier.ErrMaxKeys) != want ||
			errors.Is(err, twotier.ErrOverload) != want || errors.Is(err, twotier.ErrFull) {
			t.Fatalf("key %d: %v", i, err)
		}
		if err := count("", fmt.Sprint("other", i)); err != nil {
			t.Fatalf("another namespace: %v", err)
		}
	}
	if err := count("few", "a1"); err != nil {
		t.Errorf("a key that is known: %v", err)
	}
	if n := strings.Count(log.String(), "namespace=few"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log.String())
	}
	flush(t, c)
	clk.set(clk.Now() + 3000)
	for i := range most / 2 {
		if err := count("few", fmt.Sprint("b", i)); err != nil {
			t.Errorf("key %d once the others rest: %v", i, err)
		}
	}
	if n := c.Stats().Keys; n != 3*most+most {
		t.Errorf("%d keys are in memory, want %d of one namespace and %d of the other", n,
			most, 3*most)
	}
}

// TestKeysAtALimitAreTheLastToBeEvicted floods a small memory with keys. Some earlier keys, last
// used before all others, are at a limit.
func TestKeysAtALimitAreTheLastToBeEvicted(t *testing.T) {
	s := newCrowd(t, budgetParts*8<<10)
	const limited = 50
	for i := range limited {
		key := fmt.Sprint("limited", i)
		acquire(t, s.c, key, 5, 0, limits(3_600_000, 5))
		if res := acquire(t, s.c, key, 1, 0, limits(3_600_000, 5)); res.Allowed {
			t.Fatalf("%s is not at its limit", key)
		}
	}
	flush(t, s.c)
	s.clk.set(s.clk.Now() + 3000)
	for i := range 15_000 {
		if err := s.c.Do(context.Background(), addOp(fmt.Sprint("flood", i), 1, twotier.AckMemory),
			new(twotier.Result)); err != nil && !errors.Is(err, twotier.ErrFull) {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			flush(t, s.c)
			s.clk.set(s.clk.Now() + 3000)
		}
	}
	if s.c.Stats().EvictedTotal == 0 {
		t.Fatal("nothing was evicted")
	}
	gone := 0
	for i := range limited {
		if !s.c.Held(nil, fmt.Append(nil, "limited", i)).Found {
			gone++
		}
	}
	if gone > 0 {
		t.Errorf("%d of %d keys at their limit were evicted, %d keys in all", gone, limited,
			s.c.Stats().EvictedTotal)
	}
}
