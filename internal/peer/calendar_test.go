package peer_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
)

// observer keeps the limits of the operations that a server receives.
type observer struct {
	strict
	limits *[][]twotier.Limit
}

func (o observer) Serve(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		*o.limits = append(*o.limits, slices.Clone(ops[i].Checks[0].Limits))
		res[i].AddCheck()
	}
}

// TestUnknownPeriodsFailAlone receives a period in a time zone that this node does not have. Its
// operation is refused, and the others of the message are executed.
func TestUnknownPeriodsFailAlone(t *testing.T) {
	monthly, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
	must.Succeed(t, err)
	ops := []twotier.Op{
		{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1,
			Limits: []twotier.Limit{{Max: 9, Period: monthly}}}}},
		{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("l"), N: 1,
			Limits: []twotier.Limit{{Max: 5, Window: 1000}, {Max: 9, Period: monthly}}}}},
	}
	for _, zone := range []string{"Europe/Lisbon", "Europe/Nowhere"[:13]} {
		var got [][]twotier.Limit
		s := peer.NewServer(peer.ServerOptions{Self: "b", Node: observer{strict{t}, &got}})
		raw := bytes.Replace(peer.Batch("a", "b", 1, ops), []byte("Europe/Lisbon"), []byte(zone), 1)
		if _, err := s.Handle(t.Context(), raw); err != nil || len(got) != 2 ||
			!slices.Equal(got[1], ops[1].Checks[0].Limits) {
			t.Fatalf("%s: %+v, %v", zone, got, err)
		}
		op := twotier.Op{Checks: []twotier.Check{{Key: []byte("k"), N: 1, Limits: got[0]}}}
		ladder, err := leaparray.NewLadder(0, leaparray.Level{Width: 3_600_000_000_000, Count: 768})
		must.Succeed(t, err)
		_, err = twotier.Validate(&op, func([]byte) *leaparray.Ladder { return ladder }, 1)
		invalid, refused := errors.AsType[*twotier.InvalidError](err)
		if known := zone == "Europe/Lisbon"; known != (err == nil) ||
			refused && invalid.Field != "window" {
			t.Errorf("%s: %v", zone, err)
		}
	}
}
