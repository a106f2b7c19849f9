package hotkeys

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// LeaseRequest asks an owner for new or renewed loans of its keys.
type LeaseRequest struct{ Loans []twotier.LoanRequest }

// LeaseResponse answers each of the requests.
type LeaseResponse struct{ Loans []twotier.LoanResponse }

const (
	// reserve is how long a loan should last.
	reserve = 250 * time.Millisecond
	// leastSpare is the least number of events to borrow.
	leastSpare = 64
	// manySpare is the number of events worth an exchange at any time.
	manySpare = 500
	// renewEvery is how often a loan is renewed even if little of it is used.
	renewEvery = 400 * time.Millisecond
)

// borrowedKey is a loan of this node. The tracker's lock guards it, but while busy is set, only the
// exchange accesses the fields below ending, without the lock, and nothing changes ending, which
// the exchange reads as well.
type borrowedKey struct {
	busy   bool
	ending bool // to be repaid
	q      twotier.LoanRequest
	needed int64   // events since the loan began
	rate   float64 // events per second that this node needs
	asked  time.Time
	since  int64 // needed at the last review
	cooled int   // consecutive reviews at which the key was no longer hot
}

func newLoan(c *twotier.Check) *borrowedKey {
	return &borrowedKey{q: twotier.LoanRequest{NS: c.NS, Key: c.Key, Limits: c.Limits,
		Loan: rand.Text()}}
}

// updateEnding decides whether the loan ends: the key is no longer hot, or its operations now have
// other limits. seen may be nil.
func (b *borrowedKey) updateEnding(seen *heat, hot int64) {
	if b.busy {
		return // another review follows soon
	}
	events := b.needed - b.since
	b.since = b.needed
	if seen != nil {
		events += seen.events
		if seen.check.Limits != nil && !slices.Equal(seen.check.Limits, b.q.Limits) {
			b.ending = true
		}
	}
	if b.cooled++; 2*events >= hot {
		b.cooled = 0
	}
	b.ending = b.ending || b.cooled >= coolAfter
}

// spare returns the number of events that the node should be able to count.
func (b *borrowedKey) spare() int64 {
	if b.ending {
		return 0
	}
	return leastSpare + int64(b.rate*reserve.Seconds())
}

// prepareRequest prepares the next request. It reports false if the counter no longer has the loan.
func (b *borrowedKey) prepareRequest(c Counter, now time.Time) bool {
	needed, ok := c.FillLoanRequest(&b.q, b.spare())
	if d := now.Sub(b.asked); !b.asked.IsZero() && d > 0 {
		rate := float64(needed-b.needed) / d.Seconds()
		b.rate = max(rate, (b.rate+rate)/2)
	}
	b.needed = needed
	return ok
}

// isDue reports whether it is time for the next request: about half of the loan is used.
func (b *borrowedKey) isDue(now time.Time) bool {
	since := now.Sub(b.asked)
	return since >= renewEvery || since >= reserve/2 && b.rate*since.Seconds() >= leastSpare ||
		b.rate*since.Seconds() >= manySpare
}

// dueLoans returns the loans that need an exchange with the owner, by owner.
func (t *Tracker) dueLoans(now time.Time) map[*ring.Member][]*borrowedKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	table, list := t.opt.Table(), map[*ring.Member][]*borrowedKey{}
	for _, b := range t.borrowed {
		if b.busy || !b.isDue(now) {
			continue
		}
		if at := table.Owner(t.opt.Placement.Of(b.q.NS, b.q.Key)); at >= 0 {
			b.busy = true
			list[table.Member(at)] = append(list[table.Member(at)], b)
		}
	}
	return list
}

// exchange sends the owner of some keys a request.
func (t *Tracker) exchange(ctx context.Context, to *ring.Member, list []*borrowedKey) {
	ctx, cancel := context.WithTimeout(ctx, twotier.LoanTime)
	defer cancel()
	asked, q := time.Now(), new(LeaseRequest)
	gone := make([]bool, len(list))
	for i, b := range list {
		gone[i] = !b.prepareRequest(t.opt.Counter, asked)
		b.asked = asked
		q.Loans = append(q.Loans, b.q)
	}
	a, err := t.ask(ctx, to, q)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, b := range list {
		if b.busy = false; err == nil && i < len(a.Loans) && a.Loans[i].Number != 0 {
			t.opt.Counter.AcceptLoan(&b.q, &a.Loans[i], asked)
			gone[i] = gone[i] || b.ending && t.opt.Counter.EndLoan(&b.q)
		}
		if gone[i] {
			delete(t.borrowed, string((&twotier.Check{NS: b.q.NS, Key: b.q.Key}).AppendName(nil)))
			t.opt.Logger.Info("no longer borrowing a key", "key", string(b.q.Key))
		}
	}
	if slices.Contains(gone, true) {
		t.publishLocked()
	}
}

// ask sends a request to the owner, which may be this node by now.
func (t *Tracker) ask(ctx context.Context, to *ring.Member, q *LeaseRequest) (LeaseResponse,
	error) {
	if table := t.opt.Table(); table.Self() >= 0 && table.Member(table.Self()).Name == to.Name {
		return *t.Lend(ctx, q), nil
	}
	var a LeaseResponse
	return a, t.opt.Peers.Ask(ctx, to, q, &a)
}

// Lend answers another node's request.
func (t *Tracker) Lend(ctx context.Context, q *LeaseRequest) *LeaseResponse {
	a := &LeaseResponse{Loans: make([]twotier.LoanResponse, len(q.Loans))}
	for i := range q.Loans {
		l := &q.Loans[i]
		answer, err := t.opt.Counter.Lend(ctx, l)
		if err != nil {
			continue
		}
		a.Loans[i] = answer
		t.recordLent(l)
	}
	return a
}

func (t *Tracker) recordLent(l *twotier.LoanRequest) {
	name := string((&twotier.Check{NS: l.NS, Key: l.Key}).AppendName(nil))
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.lent[name]
	if t.lent[name] = time.Now(); !known {
		t.publishLocked()
	}
}

// RecallRequest asks a node to store its counts of a key for the key's owner.
type RecallRequest struct{ NS, Key []byte }

// recallTimeout bounds the time until the other nodes have stored their counts and this node has
// read them.
const recallTimeout = time.Second

// recall is one recall of a key. err is set when done is closed.
type recall struct {
	done chan struct{}
	err  error
}

// wait waits for the recall. The error wraps twotier.ErrUnavailable.
func (r *recall) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return errRecallLate
	}
}

var errRecallLate = fmt.Errorf("%w: what others have counted of a key has not come in time",
	twotier.ErrUnavailable)

// joinRecall returns a recall of a key that begins now or later. Callers that arrive during a
// recall share the next one.
func (t *Tracker) joinRecall(c *twotier.Check) *recall {
	name := string(c.AppendName(nil))
	t.mu.Lock()
	next, running := t.recalls[name]
	if next == nil {
		next = &recall{done: make(chan struct{})}
		t.recalls[name] = next
	}
	t.mu.Unlock()
	if !running {
		key := twotier.Check{NS: bytes.Clone(c.NS), Key: bytes.Clone(c.Key)}
		t.opt.Go(func(ctx context.Context) { t.runRecalls(ctx, name, &key) })
	}
	return next
}

// runRecalls recalls a key until no caller is waiting.
func (t *Tracker) runRecalls(ctx context.Context, name string, c *twotier.Check) {
	for {
		t.mu.Lock()
		r := t.recalls[name]
		if t.recalls[name] = nil; r == nil {
			delete(t.recalls, name)
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		r.err = t.recall(ctx, c)
		close(r.done)
	}
}

// recall has all other nodes store their counts of a key, and then reads the key.
func (t *Tracker) recall(ctx context.Context, c *twotier.Check) error {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	var mu sync.Mutex
	var failed error
	rpc.Broadcast(ctx, t.opt.Table(), recallTimeout, func(ctx context.Context, m *ring.Member) {
		err := t.opt.Peers.Ask(ctx, m, &RecallRequest{NS: c.NS, Key: c.Key}, nil)
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		failed = fmt.Errorf("%w: node %s, which may have counted this key, has not stored it: %v",
			twotier.ErrUnavailable, m.ID, err)
	})
	if failed != nil {
		return failed
	}
	return t.opt.Counter.CatchUp(ctx, c)
}

// ServeRecall answers another node's Recall.
func (t *Tracker) ServeRecall(ctx context.Context, q *RecallRequest) error {
	return t.opt.Counter.CatchUp(ctx, &twotier.Check{NS: q.NS, Key: q.Key})
}

// RecallingCounter is the counter of a node that lends keys: before it takes back counts of a lent
// key, it recalls the other nodes' counts.
type RecallingCounter struct {
	Counter *syncer.Counter
	Tracker *Tracker
}

// Do is syncer.Counter.Do for an operation that takes back.
func (r RecallingCounter) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	taking := *op
	one := r.beginRecall(&taking)
	if one == nil {
		return r.Counter.Do(ctx, &taking, res)
	}
	failed := one.wait(ctx)
	if ctx.Err() != nil {
		return errRecallLate
	}
	taking.Recalled = failed == nil
	return preferRecallError(r.Counter.Do(ctx, &taking, res), failed)
}

// DoAll is syncer.Counter.DoAll. It makes all recalls at the same time.
func (r RecallingCounter) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	var recalls map[int]*recall // by position
	for i := range ops {
		if !ops[i].TakesBack() {
			continue
		}
		if one := r.beginRecall(&ops[i]); one != nil {
			if recalls == nil {
				recalls = map[int]*recall{}
			}
			recalls[i] = one
		}
	}
	for i, one := range recalls {
		ops[i].Recalled = one.wait(ctx) == nil
	}
	if len(recalls) > 0 && ctx.Err() != nil {
		for i := range res {
			res[i].Err = errRecallLate
		}
		return
	}
	r.Counter.DoAll(ctx, ops, res)
	for i, one := range recalls {
		res[i].Err = preferRecallError(res[i].Err, one.err)
	}
}

// beginRecall begins a recall, unless this counter has all counts that could be taken back, or does
// not own the key.
func (r RecallingCounter) beginRecall(op *twotier.Op) *recall {
	op.Recalled = false
	lent, decides := r.Counter.IsLent(&op.Checks[0])
	if !lent {
		op.Recalled = decides
		return nil
	}
	return r.Tracker.joinRecall(&op.Checks[0])
}

// preferRecallError replaces the error of an operation that was refused for lack of a recall by the
// error of the recall.
func preferRecallError(err, failed error) error {
	if failed != nil && errors.Is(err, syncer.ErrLent) {
		return failed
	}
	return err
}
