package multiowner

import (
	"context"
	"errors"
	"fmt"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/syncer"
)

// finish tells those that have reserved something what was decided.
func (q *Acquirer) finish(ctx context.Context, all []*acquire) {
	list := make([]nodeTask, 0, len(all))
	for _, a := range all {
		switch {
		case a.inDoubt, a.op.DryRun:
		case a.err == nil && a.admitted(a.parts):
			list = append(list, a.telling(rpc.VerbConfirm, a.op.Ack)...)
		default:
			list = append(list, a.telling(rpc.VerbUndo, syncer.AckDefault)...)
		}
	}
	for _, e := range q.insist(ctx, list) {
		e.of.untold = append(e.of.untold, e)
		what := "given up, but not every node knows"
		if e.task.Verb == rpc.VerbConfirm {
			what = "counted, but not every node has confirmed"
		}
		e.of.err = fmt.Errorf("%w: %s: %v", syncer.ErrUnknownOutcome, what, e.err)
	}
	for _, a := range all {
		switch {
		case a.inDoubt:
			q.background(a, func(ctx context.Context) { q.resolve(ctx, a) })
		case len(a.untold) > 0:
			q.background(a, func(ctx context.Context) { q.announce(ctx, a.untold) })
		default:
			q.numbers.settle(a.id.Number)
		}
	}
}

// telling returns the tasks to confirm or undo what may have been reserved.
func (a *acquire) telling(verb rpc.Verb, ack syncer.Ack) (list []nodeTask) {
	for i := range a.holders() {
		p := &a.parts[i]
		if p.res.Err == nil && p.res.Allowed || errors.Is(p.res.Err, syncer.ErrUnknownOutcome) {
			list = append(list, nodeTask{of: a, to: p.To,
				task: rpc.Task{Verb: verb, Acquire: a.id, Op: syncer.Op{Ack: ack}}})
		}
	}
	return list
}

// background ends an acquire after its caller has been answered.
func (q *Acquirer) background(a *acquire, end func(ctx context.Context)) {
	q.opt.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 2*reserveLimit)
		defer cancel()
		end(ctx)
		q.numbers.settle(a.id.Number) // owners that have not been reached ask, and then count
	})
}

// resolve asks what has become of an acquire, and tells the other owners. They would ask the
// decider themselves after a while, but it may have left by then.
func (q *Acquirer) resolve(ctx context.Context, a *acquire) {
	outcome, err := q.local.learn(ctx, &reservation{id: a.id, decider: a.decider().To.Name,
		since: a.began, abandoned: true})
	switch {
	case err != nil:
	case outcome == NotCarriedOut:
		q.announce(ctx, a.telling(rpc.VerbUndo, syncer.AckDefault))
	default:
		q.announce(ctx, a.telling(rpc.VerbConfirm, syncer.AckMemory))
	}
}

// announce tells owners the outcome until they know it.
func (q *Acquirer) announce(ctx context.Context, list []nodeTask) {
	for {
		for i := range list {
			list[i].task.Op.Ack = syncer.AckMemory
		}
		list = q.insist(ctx, list)
		if len(list) == 0 || !retry.Pause(ctx, insistPause) {
			return
		}
	}
}
