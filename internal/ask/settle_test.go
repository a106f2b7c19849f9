package ask_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/request"
)

// late is a service whose keys' owners receive each operation too late to hold anything.
type late struct{}

func (late) Do(context.Context, *twotier.Op, *twotier.Result) error {
	return &twotier.InvalidError{Check: 1, Limit: -1, Field: "hold"}
}

func (l late) DoAll(ctx context.Context, ops []twotier.Op, results []twotier.Result) {
	for i := range ops {
		results[i].Err = l.Do(ctx, &ops[i], &results[i])
	}
}

// TestHoldEndsOnItsWay: a hold is open where it is settled or renewed, but has ended when the
// operation arrives at the owner of its key.
func TestHoldEndsOnItsWay(t *testing.T) {
	h := &ask.Holds{Now: func() int64 { return 1000 }}
	h.Sealer.SetSecret([]byte("secret"))
	for release, stays := range map[bool]string{false: "events counted", true: "events released"} {
		id := h.Sealer.Seal(&holds.Hold{Until: 1001, Release: release, Checks: []holds.Check{
			{Key: []byte("k"), N: 1, TS: 1, Leased: true}}})
		r := &ask.Request{Rules: newRules(), Holds: h}
		_, settled := r.Settle(t.Context(), late{}, &ask.Settling{ID: id})
		_, renewed := r.Renew(t.Context(), late{}, id, 5000)
		for _, f := range []*request.Failure{settled, renewed} {
			if f == nil || f.Kind != request.Gone || !strings.Contains(f.Detail, stays) {
				t.Errorf("%v, want kind %d, %s", f, request.Gone, stays)
			}
		}
	}
}

// marking is a service that keeps marks of holds, and records which events of keys are taken back.
// It can't renew the hold of one key.
type marking struct {
	fixed string

	mu    sync.Mutex
	marks map[string]int64
	taken map[string]int64
}

func newMarking(fixed string) *marking {
	return &marking{fixed: fixed, marks: map[string]int64{}, taken: map[string]int64{}}
}

func (m *marking) Do(_ context.Context, op *twotier.Op, res *twotier.Result) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if res.Reset(); op.Kind == twotier.Count {
		return nil
	}
	for i := range op.Checks {
		c, r := &op.Checks[i], res.AddCheck()
		if !c.IsLease() {
			continue
		}
		key := string(c.Key)
		if len(op.Checks) == 1 && strings.HasSuffix(key, "/"+m.fixed) {
			return twotier.ErrUnavailable
		}
		if mark := m.marks[key]; mark > 0 {
			r.Refused, r.Limits = true, []twotier.LimitResult{{Count: mark}}
			return nil
		}
		m.marks[key] = c.N
	}
	res.Allowed = true
	for i := range op.Checks {
		if c := &op.Checks[i]; !c.IsLease() {
			m.taken[string(c.Key)] -= c.N
		}
	}
	return nil
}

func (m *marking) DoAll(ctx context.Context, ops []twotier.Op, results []twotier.Result) {
	for i := range ops {
		results[i].Err = m.Do(ctx, &ops[i], &results[i])
	}
}

// takenOf returns how many events of a key were taken back.
func (m *marking) takenOf(key string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken[key]
}

// TestRenewalsOfSomeKeys: a renewal of which one part fails has no id. Nevertheless, the keys that
// it has renewed are released at the new end, and the others are not released twice.
func TestRenewalsOfSomeKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarking("b")
		h := &ask.Holds{Now: func() int64 { return time.Now().UnixMilli() }}
		h.Tally.Now = h.Now
		h.Sealer.SetSecret([]byte("secret"))
		h.Open(m, nil, 0, slog.New(slog.DiscardHandler))
		defer h.Close()
		now := h.Now()
		id := h.Sealer.Seal(&holds.Hold{Until: now + 10_000, Release: true, Checks: []holds.Check{
			{Key: []byte("a"), N: 3, TS: now}, {Key: []byte("b"), N: 5, TS: now}}})
		r := &ask.Request{Rules: newRules(), Holds: h}
		if _, f := r.Renew(t.Context(), m, id, 60_000); f == nil || f.Kind != request.Unknown {
			t.Errorf("%v, want kind %d", f, request.Unknown)
		}
		time.Sleep(59 * time.Second)
		if a, b := m.takenOf("a"), m.takenOf("b"); a != 0 || b != 0 {
			t.Errorf("%d and %d are released before the new end", a, b)
		}
		time.Sleep(5 * time.Second)
		if a, b := m.takenOf("a"), m.takenOf("b"); a != 3 || b != 0 {
			t.Errorf("%d and %d are released, want 3 and 0", a, b)
		}
	})
}

// TestRenewedHoldIsNotSettled: the old id of a renewed hold can't be settled, which is no success.
func TestRenewedHoldIsNotSettled(t *testing.T) {
	m := newMarking("-")
	h := &ask.Holds{Now: func() int64 { return 1000 }}
	h.Tally.Now = h.Now
	h.Sealer.SetSecret([]byte("secret"))
	old := h.Sealer.Seal(&holds.Hold{Until: 2000, Checks: []holds.Check{
		{Key: []byte("a"), N: 3, TS: 1000}, {Key: []byte("b"), N: 5, TS: 1000}}})
	r := &ask.Request{Rules: newRules(), Holds: h}
	renewed, f := r.Renew(t.Context(), m, old, 60_000)
	if f != nil {
		t.Fatal(f)
	}
	if a, f := r.Settle(t.Context(), m, &ask.Settling{ID: old}); f == nil ||
		f.Kind != request.Gone || !strings.Contains(f.Detail, "renewed") || len(m.taken) > 0 {
		t.Errorf("%+v, %v, %v", a, f, m.taken)
	}
	for _, repeated := range []bool{false, true} {
		a, f := r.Settle(t.Context(), m, &ask.Settling{ID: renewed.ID})
		if f != nil || a.Repeated != repeated || m.taken["a"] != 3 || m.taken["b"] != 5 {
			t.Errorf("%+v, %v, %v", a, f, m.taken)
		}
	}
}

// cold is a service whose keys' owners can't ask the store, in a namespace that refuses then. Some
// of the leases are lost as well.
type cold struct{ lost bool }

func (c cold) Do(_ context.Context, op *twotier.Op, res *twotier.Result) error {
	res.Reset()
	for i := range op.Checks {
		res.AddCheck().Refused = i == 0 || i == 2 && c.lost
	}
	return nil
}

func (c cold) DoAll(ctx context.Context, ops []twotier.Op, results []twotier.Result) {
	for i := range ops {
		results[i].Err = c.Do(ctx, &ops[i], &results[i])
	}
}

// TestRefusedSettlementIsNotDone: a settlement that the namespace of a key refuses has to be
// repeated. It has not been carried out before.
func TestRefusedSettlementIsNotDone(t *testing.T) {
	h := &ask.Holds{Now: func() int64 { return 1000 }}
	h.Sealer.SetSecret([]byte("secret"))
	r := &ask.Request{Rules: newRules(), Holds: h}
	for _, leased := range []bool{false, true} {
		id := h.Sealer.Seal(&holds.Hold{Until: 2000, Checks: []holds.Check{{Key: []byte("k"), N: 1,
			TS: 1, Leased: leased}}})
		for _, lost := range []bool{false, true} {
			a, f := r.Settle(t.Context(), cold{lost}, &ask.Settling{ID: id, All: 5})
			if f == nil || f.Kind != request.Unknown {
				t.Errorf("leased %v, lost %v: %+v, %v", leased, lost, a, f)
			}
		}
	}
}

// TestSettleFindsKeys: a settlement of single keys may name their namespaces, also the default one.
func TestSettleFindsKeys(t *testing.T) {
	h := &ask.Holds{Now: func() int64 { return 1000 }}
	h.Sealer.SetSecret([]byte("secret"))
	id := h.Sealer.Seal(&holds.Hold{Until: 1001, Checks: []holds.Check{
		{Key: []byte("a"), TS: 1}, {NS: []byte("sms"), Key: []byte("b"), TS: 1},
		{NS: []byte("default"), Key: []byte("c"), TS: 1}}})
	r := &ask.Request{Rules: newRules(), Holds: h}
	for _, test := range []struct {
		ns, key string
		want    request.Kind
	}{
		{"", "a", request.Gone}, {"default", "a", request.Gone}, {"sms", "a", request.Invalid},
		{"", "b", request.Gone}, {"default", "b", request.Invalid}, {"sms", "b", request.Gone},
		{"", "c", request.Gone}, {"default", "c", request.Gone}, {"", "d", request.Invalid},
	} {
		_, f := r.Settle(t.Context(), late{}, &ask.Settling{ID: id, Checks: []ask.SettledCheck{
			{NS: []byte(test.ns), Key: []byte(test.key)}}})
		if f == nil || f.Kind != test.want { // late finds the hold of a known key gone
			t.Errorf("%s of %s: %v, want kind %d", test.key, test.ns, f, test.want)
		}
	}
}

// thawing refuses like cold until it is warm.
type thawing struct {
	cold
	warm  atomic.Bool
	calls atomic.Int64
}

func (s *thawing) DoAll(ctx context.Context, ops []twotier.Op, results []twotier.Result) {
	s.calls.Add(1)
	if s.cold.DoAll(ctx, ops, results); s.warm.Load() {
		for i := range results {
			results[i].Allowed = true
		}
	}
}

// one is a store with the deadline of one hold.
type one struct {
	id      string
	slot    int64
	removed atomic.Bool
}

func (s *one) ChangeDeadlines(_ context.Context, _, remove map[int64][]string) error {
	s.removed.Store(s.removed.Load() || len(remove) > 0)
	return nil
}

func (s *one) Deadlines(_ context.Context, slots []int64,
	visit func(slot int64, ids []string)) error {
	for _, slot := range slots {
		if slot == s.slot && !s.removed.Load() {
			visit(slot, []string{s.id})
		} else {
			visit(slot, nil)
		}
	}
	return nil
}

// TestRefusedReleaseIsRepeated: a release that the namespace of a key refuses is not done, and is
// repeated until it is.
func TestRefusedReleaseIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := func() int64 { return time.Now().UnixMilli() }
		h, service := &ask.Holds{Now: now}, &thawing{}
		h.Sealer.SetSecret([]byte("secret"))
		until := now() - now()%holds.DeadlineSlot.Milliseconds()
		store := &one{slot: until, id: h.Sealer.Seal(&holds.Hold{Until: until, Release: true,
			Checks: []holds.Check{{Key: []byte("k"), N: 1, TS: until - 1000}}})}
		h.Open(service, store, 0, slog.New(slog.DiscardHandler))
		defer h.Close()
		time.Sleep(time.Minute)
		if calls := service.calls.Load(); calls < 5 || store.removed.Load() {
			t.Errorf("%d attempts, removed: %v", calls, store.removed.Load())
		}
		service.warm.Store(true)
		time.Sleep(10 * time.Second)
		if !store.removed.Load() {
			t.Error("it is not released")
		}
	})
}
