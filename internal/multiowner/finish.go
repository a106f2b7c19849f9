package multiowner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
)

// finish sends the decisions to all nodes with reservations.
func (q *Acquirer) finish(ctx context.Context, all []*acquire) {
	list := make([]nodeTask, 0, len(all))
	for _, a := range all {
		switch {
		case a.inDoubt, a.op.DryRun:
		case a.err == nil && a.admitted(a.parts):
			list = append(list, a.outcomeTasks(rpc.VerbConfirm, a.op.Ack)...)
		default:
			list = append(list, a.outcomeTasks(rpc.VerbUndo, twotier.AckDefault)...)
		}
	}
	for _, e := range q.runUntilDelivered(ctx, list) {
		e.of.untold = append(e.of.untold, e)
		what := "given up, but not every node knows"
		if e.task.Verb == rpc.VerbConfirm {
			what = "counted, but not every node has confirmed"
		}
		e.of.err = fmt.Errorf("%w: %s: %v", twotier.ErrUnknownOutcome, what, e.err)
	}
	for _, a := range all {
		switch {
		case a.inDoubt:
			q.finishInBackground(a, doubtTime, q.resolve)
		case len(a.untold) > 0:
			q.finishInBackground(a, announceTime, func(ctx context.Context, a *acquire) {
				q.local.coordinated.set(a.id.Number, announcedOutcome(a.untold), time.Now())
				q.announce(ctx, a.untold)
			})
		default:
			q.settleNumber(a)
		}
	}
}

// settleNumber records that no node will ask the decider about an acquire any more.
func (q *Acquirer) settleNumber(a *acquire) { q.numbers.settle(a.decider().To.Name, a.id.Number) }

// announcedOutcome returns the outcome that tasks announce.
func announcedOutcome(list []nodeTask) Outcome {
	if list[0].task.Verb == rpc.VerbConfirm {
		return CarriedOut
	}
	return NotCarriedOut
}

// outcomeTasks returns the tasks to confirm or undo possible reservations.
func (a *acquire) outcomeTasks(verb rpc.Verb, ack twotier.Ack) (list []nodeTask) {
	for i := range a.holders() {
		p := &a.parts[i]
		if p.res.Err == nil && p.res.Allowed || errors.Is(p.res.Err, twotier.ErrUnknownOutcome) {
			list = append(list, nodeTask{of: a, to: p.To,
				task: rpc.Task{Verb: verb, Acquire: a.id, Op: twotier.Op{Ack: ack}}})
		}
	}
	return list
}

// announceTime is how long a coordinator repeats an outcome to owners that it did not reach. After
// that they have to ask.
const announceTime = 2 * reserveLimit

// finishInBackground ends an acquire after its caller has received the answer.
func (q *Acquirer) finishInBackground(
	a *acquire, most time.Duration, end func(ctx context.Context, a *acquire),
) {
	q.opt.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		end(ctx, a)
		q.settleNumber(a) // owners without the outcome ask this node as well
	})
}

// resolve asks for the outcome of an acquire, and announces it to the other owners. Until it is
// known, reservations are counted; a decider that returns corrects that. The number is not settled
// before, or the decider could forget the outcome.
func (q *Acquirer) resolve(ctx context.Context, a *acquire) {
	r := &reservation{id: a.id, decider: a.decider().To.Name, since: a.began, abandoned: true}
	outcome, err := q.local.learnOutcome(ctx, r)
	if err == nil && outcome == Forgotten {
		q.local.coordinated.set(a.id.Number, Forgotten, time.Now())
		q.local.countInDoubt(ctx, r.id)
		outcome, err = q.local.awaitOutcome(ctx, r)
	}
	if err != nil {
		return
	}
	q.local.coordinated.set(a.id.Number, outcome, time.Now())
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	if outcome == NotCarriedOut {
		q.announce(ctx, a.outcomeTasks(rpc.VerbUndo, twotier.AckDefault))
	} else {
		q.announce(ctx, a.outcomeTasks(rpc.VerbConfirm, twotier.AckMemory))
	}
}

// announce sends owners the outcome until they have it.
func (q *Acquirer) announce(ctx context.Context, list []nodeTask) {
	for {
		for i := range list {
			list[i].task.Op.Ack = twotier.AckMemory
		}
		list = q.runUntilDelivered(ctx, list)
		if len(list) == 0 || !retry.Pause(ctx, insistPause) {
			return
		}
	}
}
