package hotkeys

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/ring"
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

// recordLent records that a key is lent.
func (t *Tracker) recordLent(l *twotier.LoanRequest) {
	name := string((&twotier.Check{NS: l.NS, Key: l.Key}).AppendName(nil))
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.lent[name]
	if t.lent[name] = time.Now(); !known {
		t.publishLocked()
	}
}
