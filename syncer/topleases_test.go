package syncer_test

import (
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestTopLeases lists the keys of any namespace with the most open leases: neither ended nor
// returned ones, nor marks of settled holds, nor bans, nor events. By events the leases are not
// listed.
func TestTopLeases(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, Store: embedded.New(embedded.Options{})})
	take := func(ns, key string, n, until int64) {
		of, name := twotier.LeaseKey([]byte(ns), "", []byte(key))
		do(t, c, twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
			{Kind: twotier.LeaseCheck, NS: of, Key: name, N: n, Until: until,
				Limits: limits(1, 1<<40)}}})
	}
	for i := range int64(300) { // a search keeps only the first few
		take("many", fmt.Sprint("k", i), 1+i/299, t0+1000)
	}
	take("", "bob", 3, t0+1000)
	take("", "bob", 1, t0+500)
	take("", "slash/ann", 5, t0+2000)
	take("", "slash/ann", -2, t0+2000)
	take("sms", "bob", 9, t0+400)
	take("returned", "k", 4, t0+1000)
	take("returned", "k", -4, t0+1000)
	add(t, c, "events", 1000, 0)
	settled, name := twotier.SettledKey(1000, nil, "hold", []byte("settled"))
	do(t, c, twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Kind: twotier.LeaseCheck,
		NS: settled, Key: name, N: 99, Until: t0 + 60_000, Limits: limits(1, 1<<40)}}})
	lists := func(n int, want ...twotier.KeyCount) {
		t.Helper()
		rows, err := c.TopLeases(t.Context(), n)
		if err != nil || !slices.Equal(rows, want) {
			t.Errorf("at %d: %v, %v, want %v", clk.Now()-t0, rows, err, want)
		}
	}
	bob, ann := twotier.KeyCount{NS: "default", Key: "bob", Count: 4},
		twotier.KeyCount{NS: "default", Key: "slash/ann", Count: 3}
	lists(3, twotier.KeyCount{NS: "sms", Key: "bob", Count: 9}, bob, ann)
	lists(1, twotier.KeyCount{NS: "sms", Key: "bob", Count: 9})
	clk.set(t0 + 400)
	lists(2, bob, ann)
	clk.set(t0 + 999)
	bob.Count = 3
	lists(3, bob, ann, twotier.KeyCount{NS: "many", Key: "k299", Count: 2})
	clk.set(t0 + 1000)
	lists(3, ann)
	clk.set(t0 + 2000)
	lists(3)
	rows, err := c.Top(t.Context(), 9, 3_600_000)
	if want := []twotier.KeyCount{{NS: "default", Key: "events", Count: 1000}}; err != nil ||
		!slices.Equal(rows, want) {
		t.Errorf("by events: %v, %v, want %v", rows, err, want)
	}
}
