package syncer

import (
	"context"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
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
	if k := t.sharedKey(); k != nil && k.Credit != nil && k.Credit.Loan == q.Loan {
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

// makeShared returns the shared key of the target. It makes the key shared if necessary. The
// partition is locked.
func (t *target) makeShared(now int64) (*loans.Key, error) {
	if k := t.sharedKey(); k != nil {
		return k, nil
	}
	_, e, err := t.ensureEntry(now)
	if err != nil {
		return nil, err
	}
	e.SetFlags(keys.FlagShared)
	return t.p.shareKey(t.ns, t.check.Key), nil
}

// sharedKey returns the shared key of the target, or nil if its key is not shared.
func (t *target) sharedKey() *loans.Key { return t.p.shared.Find(t.ns, t.check.Key) }

// mayBeLent reports whether others may have counts of the target's key that this counter does not
// see yet.
func (t *target) mayBeLent() bool {
	if len(t.p.shared) == 0 {
		return false
	}
	k := t.sharedKey()
	return k != nil && k.IsLent(time.Now())
}

// isUpToDate reports whether the store has reported its counts of a key that another counter
// decides about recently enough, see Counter.MaxStaleness.
func (t *target) isUpToDate(e keys.Entry) bool {
	if !e.HasFlag(keys.FlagShared) {
		return t.p.store.VerifiedWithin(t.p.readWithin)
	}
	k := t.sharedKey()
	return k != nil && time.Since(k.ReadAt) <= t.p.readWithin
}

// source returns the source of an answer about another counter's key while the store can be
// reached.
func (t *target) source() twotier.Source {
	if t.borrowed {
		return twotier.SourceNear
	}
	return twotier.SourceFallback
}

// claimCredit reports whether this counter may execute its part of an operation on another one's
// key. The partition is locked.
func (t *target) claimCredit(op *twotier.Op) bool {
	t.credit, t.borrowed = nil, false
	if t.p.ownership != notOwned || len(t.p.shared) == 0 || t.p.degraded() {
		return false
	}
	k, now := t.sharedKey(), time.Now()
	if k == nil || k.Credit == nil || !k.Credit.Valid(now) {
		return false
	}
	if op.Kind == twotier.Count {
		t.borrowed = op.MayBorrow()
		return t.borrowed
	}
	if t.borrowed = k.Credit.Covers(op, t.check, t.extra, now); t.borrowed {
		t.credit = k.Credit
	}
	return t.borrowed
}
