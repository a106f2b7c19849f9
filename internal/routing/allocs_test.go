package routing_test

import (
	"context"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/routing"
	"twotier.dev/twotier/internal/testing/race"
)

// silent is a counter that does nothing.
type silent struct{}

func (silent) Do(context.Context, *twotier.Op, *twotier.Result) error { return nil }
func (silent) DoAll(context.Context, []twotier.Op, []twotier.Result)  {}

// TestLocalOperationsAllocateNothing runs one operation on a key of this node, from a client and
// from another node.
func TestLocalOperationsAllocateNothing(t *testing.T) {
	b := newBed(t)
	r := routing.New(routing.Options{View: b.view, Counter: silent{},
		Placement: twotier.Placement{Partitions: partitions}})
	ops, res := []twotier.Op{*b.op(twotier.Add, "a")}, make([]twotier.Result, 1)
	for name, run := range map[string]func(){
		"Do":    func() { _ = r.Do(t.Context(), &ops[0], &res[0]) },
		"Serve": func() { r.Serve(t.Context(), ops, res) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 && !race.Enabled {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
