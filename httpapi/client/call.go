package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/valyala/fastjson"
)

// call is one or more operations sent to a node together, and their answer.
type call struct {
	ops   int
	body  []byte // the operations, with commas between
	write bool   // it counts
	slow  bool   // it waits for Redis
	by    time.Time

	state atomic.Int32
	done  chan struct{} // holds one
	timer *time.Timer
	reply []byte // a list of the answers
	err   error
}

// The states of a call.
const (
	waiting int32 = iota
	taken         // by a lane: it may be sent
	dropped       // its caller has left before that
)

func newCall() *call {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &call{done: make(chan struct{}, 1), timer: timer}
}

// finish ends a call. A lane calls it once for each call that it took.
func (k *call) finish(err error) {
	k.err = err
	k.done <- struct{}{}
}

// keep takes as many results as the call has operations and copies them.
func (k *call) keep(results *[]*fastjson.Value) error {
	if len(*results) < k.ops {
		*results = nil
		return unknown(k.write, errAnswer)
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

// take claims a call for a lane, unless its caller has given up.
func (k *call) take() bool { return k.state.CompareAndSwap(waiting, taken) }

// wait waits for the answer. If left is set the call must not be used again, because a lane may
// still have it.
func (k *call) wait(ctx context.Context) (left bool, err error) {
	k.timer.Reset(time.Until(k.by))
	defer k.timer.Stop()
	select {
	case <-k.done:
		return false, k.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-k.timer.C:
		err = errTimeout
	}
	if k.state.CompareAndSwap(waiting, dropped) {
		return true, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	select {
	case <-k.done: // just in time
		return false, k.err
	default:
		return true, unknown(k.write, err)
	}
}
