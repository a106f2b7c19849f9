package multiowner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// nodeTask is a step of an acquire on one node.
type nodeTask struct {
	of   *acquire
	to   *ring.Member // nil: this node
	task rpc.Task
	part *part // the part that receives the result, if any
	err  error
}

// runTasks runs tasks: all tasks of a node in one message, and all nodes at the same time.
func (q *Acquirer) runTasks(ctx context.Context, list []nodeTask) {
	groups := groupByNode(list)
	var done sync.WaitGroup
	for _, g := range groups[min(1, len(groups)):] {
		done.Go(func() { q.send(ctx, g) })
	}
	if len(groups) > 0 {
		q.send(ctx, groups[0])
	}
	done.Wait()
}

// groupByNode divides tasks by node, this one first.
func groupByNode(list []nodeTask) (groups [][]*nodeTask) {
	for i := range list {
		e := &list[i]
		at := slices.IndexFunc(groups, func(g []*nodeTask) bool { return sameNode(g[0].to, e.to) })
		if at < 0 {
			at = len(groups)
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], e)
		if at > 0 && e.to == nil {
			groups[0], groups[at] = groups[at], groups[0]
		}
	}
	return groups
}

func sameNode(a, b *ring.Member) bool { return a == b || a != nil && b != nil && a.Name == b.Name }

// send runs tasks on one node.
func (q *Acquirer) send(ctx context.Context, group []*nodeTask) {
	tasks, res := make([]rpc.Task, len(group)), make([]twotier.Result, len(group))
	for i, e := range group {
		tasks[i] = e.task
	}
	if to := group[0].to; to == nil {
		q.local.Serve(ctx, tasks, res)
	} else {
		q.opt.Peers.Do(ctx, to, tasks, res)
	}
	for i, e := range group {
		e.err = res[i].Err
		if e.part != nil {
			e.part.res = res[i]
		}
	}
}

// insistPause is the wait before a message is repeated.
const insistPause = 20 * time.Millisecond

// runUntilDelivered runs tasks, and repeats tasks that did not reach their node while there is
// time. It returns the failed ones.
func (q *Acquirer) runUntilDelivered(ctx context.Context, list []nodeTask) (failed []nodeTask) {
	for len(list) > 0 {
		q.runTasks(ctx, list)
		var again []nodeTask
		for _, e := range list {
			switch {
			case e.err == nil:
			case errors.Is(e.err, rpc.ErrUnreachable):
				again = append(again, e)
			default:
				failed = append(failed, e)
			}
		}
		list = again
		if len(list) > 0 && !retry.Pause(ctx, insistPause) {
			break
		}
	}
	return append(failed, list...)
}
