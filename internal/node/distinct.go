package node

import (
	"context"

	"twotier.dev/twotier/internal/distinct"
)

// Distinct is distinct.Counter.Distinct.
func (n *Node) Distinct(ctx context.Context, op *distinct.Op, values [][]byte,
	res *distinct.Result) error {
	return n.values().Distinct(ctx, op, values, res)
}

// DistinctAll is distinct.Counter.DistinctAll.
func (n *Node) DistinctAll(ctx context.Context, calls []distinct.Call) {
	n.values().DistinctAll(ctx, calls)
}

// values counts different values.
func (n *Node) values() *distinct.Counter {
	return &distinct.Counter{Service: n}
}
