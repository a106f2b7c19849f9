package extended

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/syncer"
)

// Service is a counter that executes operations with companions, as a node does.
type Service struct{ *syncer.Counter }

// Do executes one operation.
func (s Service) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	x := companions.Extend(op, 0)
	if err := s.Counter.Do(ctx, &x.Op, res); err != nil {
		return x.OriginalError(err)
	}
	x.ReduceResult(res)
	x.TryShadow(ctx, s.Counter.Do, res)
	return nil
}

// DoAll executes one operation after the other.
func (s Service) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Err = s.Do(ctx, &ops[i], &res[i])
	}
}
