package syncer

import (
	"context"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/loans"
)

// Lend lends events of a key that this counter decides about, renews the loan, and takes back
// events that the borrower does not need or that are no longer available. While nothing can be
// lent, the ceiling stays as it is. After an error the request may be repeated.
func (c *Counter) Lend(ctx context.Context,
	q *twotier.LoanRequest) (r twotier.LoanResponse, err error) {
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{NS: q.NS, Key: q.Key, N: 1,
		Limits: q.Limits}}}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	if err := k.prepare(&c.directory, &op, c.opt.Now()); err != nil {
		return r, err
	}
	if loans.NeedsCounts(q) {
		if err := k.lockWarm(ctx, c.opt.LoadTimeout); err != nil {
			return r, err
		}
	} else {
		k.lock()
	}
	defer k.unlock()
	return k.lend(q)
}

// lend is Lend for a key that is locked, and warm if its limits matter.
func (k *call) lend(q *twotier.LoanRequest) (r twotier.LoanResponse, err error) {
	t := &k.targets[0]
	if t.p.ownership != owned {
		return r, twotier.ErrNotOwner
	}
	key, err := t.makeShared(k.present)
	if err != nil {
		return r, err
	}
	defer t.p.unshareIdle(k.Now)
	var counts *loans.Counts
	if !t.lacksStoreCounts() && !t.p.degraded() && t.p.phase < draining {
		counts = &loans.Counts{View: k.view(t), At: k.TS,
			Reserved: t.p.reservations.ReservedEvents(t.ns, t.check.Key)}
	}
	return key.Lend(q, counts, k.Now, time.Now())
}

// ForgetLoans forgets all loans and credits: all counts are in the store, and the next owners read
// them there.
func (c *Counter) ForgetLoans() {
	for p := range c.locked() {
		for _, k := range p.shared {
			k.Cancel()
		}
		if !p.ownership.isSealed() {
			p.unshareIdle(c.opt.Now())
		}
	}
}
