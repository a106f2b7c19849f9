package syncer

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
)

// FillLoanRequest completes the next request for a loan: it asks for enough events to have spare
// ones left, and gives back the excess if there are far more. If spare is 0, the loan comes to its
// end. A loan begins with its first request, numbered 0. FillLoanRequest returns how many events
// of the key were needed since then, whether or not there was room for them. It reports false if a
// later request is about a loan that this counter no longer has.
func (c *Counter) FillLoanRequest(q *twotier.LoanRequest, spare int64) (needed int64, ok bool) {
	t, credit := c.lockCredit(q)
	defer t.p.mu.Unlock()
	if q.Number == 0 && !c.borrowingPaused.Load() && t.p.ownership == notOwned {
		k, err := t.makeShared(c.opt.Now())
		if err != nil {
			return 0, false
		}
		credit = loans.NewCredit(q)
		k.Credit = credit
	}
	if credit == nil {
		return 0, false
	}
	if c.borrowingPaused.Load() {
		spare = 0
	}
	t.recordStored(credit)
	credit.FillRequest(q, spare)
	return credit.Needed(), true
}

// lockCredit locks the partition of a loan's key and returns the credit, or nil if the key has none
// or one of another loan.
func (c *Counter) lockCredit(q *twotier.LoanRequest) (*target, *loans.Credit) {
	t := new(target)
	c.locate(t, &twotier.Check{NS: q.NS, Key: q.Key})
	t.p.mu.Lock()
	if k := t.sharedKey(); k != nil && k.Credit != nil && k.Credit.BelongsTo(q.Loan) {
		return t, k.Credit
	}
	return t, nil
}

// recordStored records how many of the borrowed events the store has acknowledged.
func (t *target) recordStored(credit *loans.Credit) {
	p := t.p
	at := p.keys.Find(t.hash, t.ns, t.check.Key)
	if p.restoration.active() || at != 0 && p.keys.EntryAt(at).HasFlag(keys.FlagParked) {
		return
	}
	credit.RecordStored(p.dirty.LastTicket, p.dirty.AckedTicket, p.outbox.ImportsSent(),
		time.Now())
}

// AcceptLoan applies the owner's response to a request that was made at this time. It ignores a
// response to any request but the last, because the owner may have received a newer one since.
func (c *Counter) AcceptLoan(q *twotier.LoanRequest, r *twotier.LoanResponse, asked time.Time) {
	t, credit := c.lockCredit(q)
	defer t.p.mu.Unlock()
	if credit != nil && !c.borrowingPaused.Load() {
		credit.Accept(r, asked, time.Now())
	}
}

// EndLoan forgets a loan. It reports false if this request has not yet confirmed to the owner that
// the store has all events counted.
func (c *Counter) EndLoan(q *twotier.LoanRequest) bool {
	t, credit := c.lockCredit(q)
	defer t.p.mu.Unlock()
	switch {
	case credit == nil:
		return true
	case !credit.IsRepaid(q) || t.p.ownership.isSealed():
		return false
	}
	t.sharedKey().Credit = nil
	t.p.unshareIdle(c.opt.Now())
	return true
}

// SetBorrowingPaused stops, or allows again, all counting of borrowed keys.
func (c *Counter) SetBorrowingPaused(on bool) {
	c.borrowingPaused.Store(on)
	for p := range c.locked() { // what borrows now is over
		for _, k := range p.shared {
			if k.Credit != nil && on {
				k.Credit.Pause()
			}
		}
	}
}
