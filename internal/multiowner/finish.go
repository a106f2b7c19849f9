package multiowner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
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

// numbers numbers the acquires of a coordinator, and tracks the settled ones for each decider. The
// first number is 1.
type numbers struct {
	mu   sync.Mutex
	last uint64
	open map[string][]numbered // by decider, in order, starting with an unsettled one
}

// numbered is an unsettled acquire, or one that follows an unsettled one.
type numbered struct {
	number  uint64
	settled bool
}

// next returns the number of a new acquire with this decider, and the lowest unsettled number with
// it.
func (n *numbers) next(decider string) (number, settled uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	n.open[decider] = append(n.open[decider], numbered{number: n.last})
	return n.last, n.open[decider][0].number
}

// settle records that no node will ask the decider for the outcome of an acquire.
func (n *numbers) settle(decider string, number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.open[decider]
	at, _ := slices.BinarySearchFunc(list, number, func(o numbered, number uint64) int {
		return cmp.Compare(o.number, number)
	})
	list[at].settled = true
	for len(list) > 0 && list[0].settled {
		list = list[1:]
	}
	if n.open[decider] = list; len(list) == 0 {
		delete(n.open, decider)
	}
}
