package decide_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
)

var minute = []twotier.Limit{{Window: 60_000, Max: 3}}

func checkOf(key string, n int64) twotier.Check {
	return twotier.Check{Key: []byte(key), N: n, Limits: minute}
}

// TestAllOrNothing: one refused check refuses the operation, and nothing is counted.
func TestAllOrNothing(t *testing.T) {
	b := newBed(t)
	b.acquire(twotier.Op{Checks: []twotier.Check{checkOf("full", 3)}})
	res := b.acquire(twotier.Op{Checks: []twotier.Check{checkOf("free", 1), checkOf("full", 1)}})
	if res.Allowed || len(b.call.Changes) > 0 || res.Checks[0].Refused || !res.Checks[1].Refused {
		t.Errorf("%+v, changes %v", res, b.call.Changes)
	}
	if res.RetryAfter != 60_000 {
		t.Errorf("try again after %d ms, want a minute", res.RetryAfter)
	}
}

// TestKnowledge: reservations, other checks of the key, and doubt refuse an event that the counts
// admit. The answer has the time after which to try again.
func TestKnowledge(t *testing.T) {
	for _, test := range []struct {
		name  string
		known decide.Key
		n     int64
		retry int64 // 0 if it is admitted
	}{
		{"nothing", decide.Key{}, 3, 0},
		{"too many at all", decide.Key{}, 4, -1},
		{"another check of the key", decide.Key{Extra: 1}, 3, -1},
		{"another check gives back", decide.Key{Extra: -1}, 4, 0},
		{"reserved", decide.Key{Reserved: 1}, 3, 50},
		{"reserved, with room", decide.Key{Reserved: 1}, 2, 0},
		{"doubt", decide.Key{Doubtful: true}, 1, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			res := b.acquire(twotier.Op{Checks: []twotier.Check{checkOf("k", test.n)}}, test.known)
			if res.Allowed != (test.retry == 0) || res.RetryAfter != test.retry {
				t.Errorf("%+v, want a retry after %d", res, test.retry)
			}
		})
	}
}

// TestDryRunsAndReservations change nothing, and answer as if they did.
func TestDryRunsAndReservations(t *testing.T) {
	for _, op := range []twotier.Op{{DryRun: true}, {Reserve: "id"}} {
		b := newBed(t)
		op.Checks = []twotier.Check{checkOf("k", 2)}
		for range 2 {
			res := b.acquire(op)
			if !res.Allowed || res.Checks[0].Limits[0].Count != 2 || len(b.call.Changes) > 0 {
				t.Errorf("%+v, changes %v", res, b.call.Changes)
			}
		}
	}
}

// TestBan: a refusal that breaches a limit starts its ban, once. Until its end, the ban refuses
// events that the limit would admit.
func TestBan(t *testing.T) {
	b := newBed(t)
	ban := twotier.Check{Kind: twotier.BanCheck, NS: []byte(twotier.BanNamespace),
		Key: []byte("k"), Ban: twotier.Ban{From: 0, To: 1},
		Limits: []twotier.Limit{{Window: 600_000, Max: 1}}}
	op := twotier.Op{Checks: []twotier.Check{checkOf("k", 3), ban, ban}}
	if res := b.acquire(op); !res.Allowed || len(b.call.Changes) != 1 {
		t.Fatalf("%+v, changes %v", res, b.call.Changes)
	}
	res := b.acquire(op)
	want := decide.Change{Check: 1, Kind: decide.Mark, At: b.now + 600_000, N: 1}
	if res.Allowed || len(b.call.Changes) != 1 || b.call.Changes[0] != want ||
		res.RetryAfter != 600_000 {
		t.Fatalf("%+v, changes %v", res, b.call.Changes)
	}
	b.now += 599_999
	if res := b.acquire(op); res.Allowed || res.RetryAfter != 1 || len(b.call.Changes) > 0 {
		t.Errorf("before its end: %+v, changes %v", res, b.call.Changes)
	}
	b.now++
	if res := b.acquire(op); !res.Allowed {
		t.Errorf("at its end: %+v", res)
	}
}

// TestLeases takes leases up to the limit, returns one, and waits for the end of the others.
func TestLeases(t *testing.T) {
	b := newBed(t)
	take := func(n, until int64) *twotier.Result {
		return b.acquire(twotier.Op{Checks: []twotier.Check{{Kind: twotier.LeaseCheck,
			Key: []byte("k"), N: n, Until: until, Limits: []twotier.Limit{{Max: 2}}}}})
	}
	first, second := b.now+1000, b.now+5000
	if !take(1, first).Allowed || !take(1, second).Allowed {
		t.Fatal("there is room for two")
	}
	if res := take(1, second); res.Allowed || res.RetryAfter != 1000 {
		t.Errorf("a third: %+v", res)
	}
	if res := take(-1, first+1); res.Allowed {
		t.Errorf("returned one that is not open: %+v", res)
	}
	if res := take(-1, first); !res.Allowed {
		t.Errorf("returned: %+v", res)
	}
	if res := take(1, second); !res.Allowed || res.Checks[0].TS != second {
		t.Errorf("in its place: %+v", res)
	}
	b.now = second
	if res := take(2, second+1); !res.Allowed {
		t.Errorf("after the end: %+v", res)
	}
}

// TestDecisionsAllocateNothing decides plain operations again and again.
func TestDecisionsAllocateNothing(t *testing.T) {
	b := newBed(t)
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{checkOf("k", 1)}}
	c := decide.Call{Op: &op, Now: b.now, TS: b.now, Keys: make([]decide.Key, 1)}
	c.Keys[0].View = *b.view(&op.Checks[0])
	var res twotier.Result
	if n := testing.AllocsPerRun(100, func() {
		res.Reset()
		if err := c.Acquire(&res, false); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a decision", n)
	}
}
