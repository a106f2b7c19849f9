package ask_test

import (
	"context"
	"testing"

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
	id := h.Sealer.Seal(&holds.Hold{Until: 1001, Checks: []holds.Check{{Key: []byte("k"), N: 1,
		TS: 1, Leased: true}}})
	r := &ask.Request{Rules: newRules(), Holds: h}
	_, settled := r.Settle(t.Context(), late{}, &ask.Settling{ID: id})
	_, renewed := r.Renew(t.Context(), late{}, id, 5000)
	for _, f := range []*request.Failure{settled, renewed} {
		if f == nil || f.Kind != request.Gone || f.Detail == "" {
			t.Errorf("%v, want kind %d", f, request.Gone)
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
