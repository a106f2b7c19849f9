package syncer_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestChargesAlwaysCount checks that a charge counts although a limit is exceeded or a ban is
// active, and that its answer is still the decision.
func TestChargesAlwaysCount(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	charge := func(n int64) twotier.Result {
		op := banned("k", n, 20_000, 0, limits(60_000, 1000))
		op.Charge = true
		return do(t, c, op)
	}
	if res := charge(900); !res.Allowed || res.Checks[0].Limits[0].Count != 900 {
		t.Errorf("within the limit: %+v", res)
	}
	if res := charge(300); res.Allowed || res.Checks[0].Limits[0].Count != 1200 ||
		res.Checks[0].TS != t0 || !res.Checks[0].Refused {
		t.Errorf("beyond the limit: %+v", res)
	}
	if res := charge(50); res.Allowed || !res.Checks[1].Refused ||
		res.Checks[0].Limits[0].Count != 1250 {
		t.Errorf("during the ban: %+v", res)
	}
	if n := count(t, c, "k", 60_000); n != 1250 {
		t.Errorf("%d are counted, want 1250", n)
	}
}

// TestNoEventsAskForOne checks that an acquire of 0 events passes while there is room for one, and
// counts nothing.
func TestNoEventsAskForOne(t *testing.T) {
	store := embedded.New(embedded.Options{})
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, Store: store})
	add(t, c, "k", 9, 0)
	for _, tc := range []struct {
		key     string
		max     int64
		allowed bool
		count   int64
	}{{"k", 10, true, 9}, {"k", 9, false, 9}, {"new", 1, true, 0}, {"new", 0, false, 0}} {
		res := acquire(t, c, tc.key, 0, 0, limits(60_000, tc.max))
		if r := &res.Checks[0]; res.Allowed != tc.allowed || r.Limits[0].Count != tc.count ||
			r.TS != 0 {
			t.Errorf("%s of at most %d: %+v", tc.key, tc.max, res)
		}
	}
	both := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
		{Key: []byte("k"), Limits: limits(60_000, 10)},
		{Key: []byte("other"), N: 2, Limits: limits(60_000, 2)}}}
	if res := do(t, c, both); !res.Allowed || res.Checks[0].TS != 0 || res.Checks[1].TS != t0 {
		t.Errorf("next to a check that counts: %+v", res)
	}
	flush(t, c)
	place := twotier.Placement{Partitions: twotier.DefaultPartitions}
	for key, want := range map[string]int64{"k": 9, "new": 0, "other": 2} {
		if n := store.Sum(place.Of(nil, []byte(key)), nil, []byte(key)); n != want {
			t.Errorf("the store has %d events of %s, want %d", n, key, want)
		}
	}
}
