package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier/internal/batching"
)

// call is one or more operations sent to a node together, and their answer.
type call struct {
	batching.Call
	ops   int
	body  []byte // the operations, separated by commas
	usual int    // checks among them that default rules judge
	write bool   // it counts
	slow  bool   // it waits for Redis
	by    time.Time
	reply []byte // a JSON array of the answers
}

// Size implements batching.Item.
func (k *call) Size() (ops, bytes int) { return k.ops, len(k.body) }

// takeResults takes one result for each operation of the call and copies it.
func (k *call) takeResults(results *[]*fastjson.Value) error {
	if len(*results) < k.ops {
		*results = nil
		return unknownOutcomeError(k.write, errAnswer)
	}
	k.reply = append(k.reply[:0], '[')
	for i, v := range (*results)[:k.ops] {
		if i > 0 {
			k.reply = append(k.reply, ',')
		}
		k.reply = v.MarshalTo(k.reply)
	}
	k.reply = append(k.reply, ']')
	*results = (*results)[k.ops:]
	return nil
}

// wait waits for the answer. If left is set the call must not be used again, because a lane may
// still have it.
func (k *call) wait(ctx context.Context) (left bool, err error) {
	outcome, err := k.Wait(ctx, time.Until(k.by))
	if errors.Is(err, batching.ErrTime) {
		err = errTimeout
	}
	switch outcome {
	case batching.Finished:
		return false, err
	case batching.Withdrawn:
		return true, fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return true, unknownOutcomeError(k.write, err)
	}
}
