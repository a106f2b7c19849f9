package syncer

import (
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/leaparray"
)

// allowance is how much of a key another counter lets this one count: the borrower's side of a
// loan, see [LoanRequest]. It is guarded by the partition's lock.
type allowance struct {
	loan   string
	number uint64 // of the last request
	limits []twotier.Limit
	// Up to ceiling events may be counted. counted have been, and the store has acknowledged
	// inStore of them.
	ceiling, counted, inStore int64
	missed                    int64 // events that found no room
	latest                    int64 // time of the latest event, in unix milliseconds
	// Once the partition's ticket is acknowledged, the store has the first marked events. The
	// latest of them is at markedLatest.
	ticket               uint64
	marked, markedLatest int64
	// The last answered request was made at asked, and its answer came at answered. In between, the
	// owner's clock showed ownerNow.
	asked, answered time.Time
	ownerNow        int64
	// Until refusedUntil, the limit at refusedBy refuses a single event more.
	refusedBy    int
	refusedUntil time.Time
}

// left returns how many more events may be counted. It is 0 if the owner has taken back more than
// was left.
func (a *allowance) left() int64 { return max(0, a.ceiling-a.counted) }

// valid reports whether the allowance is still running. It ends for the borrower no later than for
// the owner, because the borrower measures its time from before the request.
func (a *allowance) valid(now time.Time) bool { return elapsed.Between(a.asked, now) < LoanTime }

// stamp returns the time of an event that happens now. The owner must not forget the event sooner
// than its own clock allows, and this counter's clock may be behind. So the time is at least that
// of the owner's clock, assuming that the owner read it right after the request was made.
func (a *allowance) stamp(now int64) int64 {
	byOwner := a.ownerNow + elapsed.Between(a.asked, time.Now()).Milliseconds() + 1
	now = max(now, byOwner)
	a.latest = max(a.latest, now)
	return now
}

// isPast reports whether the owner's clock has certainly passed a time. An event in the owner's
// future might be missing from some of its windows if the owner already saw it.
func (a *allowance) isPast(ms int64) bool {
	return a.ownerNow+time.Since(a.answered).Milliseconds() >= ms
}

// use counts events of the allowance.
func (a *allowance) use(n int64) { a.counted += n }

// covers reports whether the allowance is enough to decide about a target of an operation.
func (a *allowance) covers(op *twotier.Op, t *target, now time.Time) bool {
	if !op.MayBorrow() || op.Kind == twotier.Acquire && !slices.Equal(t.check.Limits, a.limits) {
		return false
	}
	if t.check.N+t.extra <= a.left() {
		return true
	}
	a.missed += t.check.N
	return op.Kind == twotier.Acquire && now.Before(a.refusedUntil) &&
		t.check.N <= a.limits[a.refusedBy].Max
}

// borrow reports whether this counter may execute its part of an operation on another one's key.
// The partition is locked.
func (t *target) borrow(op *twotier.Op) bool {
	t.allowance, t.borrowed = nil, false
	if t.p.ownership != notOwned || len(t.p.shared) == 0 || t.p.degraded() {
		return false
	}
	k, now := t.p.shared.find(t), time.Now()
	if k == nil || k.allowance == nil || !k.allowance.valid(now) {
		return false
	}
	if op.Kind == twotier.Count {
		t.borrowed = op.MayBorrow()
		return t.borrowed
	}
	if t.borrowed = k.allowance.covers(op, t, now); t.borrowed {
		t.allowance = k.allowance
	}
	return t.borrowed
}

// borrow reports whether this counter decides about all keys, or has borrowed the others.
func (k *call) borrow() bool {
	for i := range k.targets {
		t := &k.targets[i]
		if !t.refused(k.op) {
			continue
		}
		if k.reservation != nil || !t.borrow(k.op) {
			return false
		}
		k.borrowed = true
	}
	return true
}

// giveBack clears the operation's claims on allowances.
func (k *call) giveBack() {
	for i := range k.targets {
		k.targets[i].allowance, k.targets[i].borrowed = nil, false
	}
	k.borrowed = false
}

// compare answers a check from the allowance. The owner's count is at least the local one, and each
// limit has at least the rest of the allowance left.
func (a *allowance) compare(k *call, t *target, v leaparray.View, r *twotier.CheckResult) {
	left := a.left()
	refused := t.check.N+t.extra > left
	for i := range a.limits {
		limit := &a.limits[i]
		peak, blur, _ := v.PeakBlur(limit.Window, k.ts)
		peak = max(0, peak) // as for an owner
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Max, Count: peak, Lo: peak,
			Hi: max(peak, limit.Max-left), BucketMS: blur}
		if lr.Refused = refused && i == a.refusedBy; lr.Refused {
			lr.Count = max(peak, limit.Max)
			lr.Lo, lr.Hi = lr.Count, lr.Count
		}
		r.Limits = append(r.Limits, lr)
	}
	if r.Refused = refused; refused {
		r.RetryAfter = max(1, time.Until(a.refusedUntil).Milliseconds())
	}
}

// Demand is how much of another counter's key a counter has needed since it began to borrow.
type Demand struct {
	// Counted is the number of counted events, Missed the number of events that found no room.
	Counted, Missed int64
}

// Borrow completes the next request for a loan: it asks for enough events to have spare ones left,
// and gives back the excess if there are far more. If spare is 0, the loan comes to its end. A loan
// begins with its first request, numbered 0. Borrow reports false if a later request is about a
// loan that this counter no longer has.
func (c *Counter) Borrow(q *LoanRequest, spare int64) (used Demand, ok bool) {
	t, a := c.lockAllowance(q)
	defer t.p.mu.Unlock()
	if q.Number == 0 && !t.p.paused && t.p.ownership == notOwned {
		k, err := t.share(c.opt.Now())
		if err != nil {
			return used, false
		}
		a = &allowance{loan: q.Loan, limits: slices.Clone(q.Limits)}
		k.allowance = a
	}
	if a == nil {
		return used, false
	}
	if t.p.paused {
		spare = 0
	}
	t.p.noteInStore(t, a)
	a.request(q, spare)
	return Demand{a.counted, a.missed}, true
}

// lockAllowance locks the partition of a loan's key and returns the allowance, or nil if the key
// has none or one of another loan.
func (c *Counter) lockAllowance(q *LoanRequest) (*target, *allowance) {
	t := new(target)
	c.locate(t, &twotier.Check{NS: q.NS, Key: q.Key})
	t.p.mu.Lock()
	k := t.p.shared.find(t)
	if k == nil || k.allowance == nil || k.allowance.loan != q.Loan {
		return t, nil
	}
	return t, k.allowance
}

// request completes a request.
func (a *allowance) request(q *LoanRequest, spare int64) {
	a.number++
	a.ceiling = max(a.counted, min(a.ceiling, a.counted+2*spare))
	q.Number, q.Ceiling, q.InStore = a.number, a.ceiling, a.inStore
	q.Want = max(0, spare-a.left())
}

// noteInStore records how many of the counted events the store has acknowledged.
func (p *partition) noteInStore(t *target, a *allowance) {
	at := p.keys.find(t.hash, t.ns, t.check.Key)
	if p.restoration.active() || at != 0 && p.keys.entry(at).has(flagParked) {
		return
	}
	if a.marked == a.inStore {
		a.marked, a.markedLatest, a.ticket = a.counted, a.latest, p.dirty.lastTicket
	}
	if p.dirty.ackedTicket >= a.ticket && p.outbox.importsSent() && a.isPast(a.markedLatest) {
		a.inStore = a.marked
	}
}

// TakeLoan applies the owner's response to a request that was made at this time. It ignores a
// response to any request but the last, because the owner may have received a newer one since.
func (c *Counter) TakeLoan(q *LoanRequest, r *LoanResponse, asked time.Time) {
	t, a := c.lockAllowance(q)
	defer t.p.mu.Unlock()
	if a == nil || t.p.paused || a.number != r.Number {
		return
	}
	a.ceiling, a.asked, a.answered, a.ownerNow = r.Ceiling, asked, time.Now(), r.Now
	if a.refusedUntil = asked; r.RefusedBy >= 0 && r.RefusedBy < len(a.limits) {
		a.refusedBy = r.RefusedBy
		a.refusedUntil = asked.Add(time.Duration(r.Refused) * time.Millisecond)
	}
}

// EndLoan forgets a loan. It reports false if this request has not yet confirmed to the owner that
// the store has all events counted.
func (c *Counter) EndLoan(q *LoanRequest) bool {
	t, a := c.lockAllowance(q)
	defer t.p.mu.Unlock()
	switch {
	case a == nil:
		return true
	case a.number != q.Number || q.Ceiling != q.InStore || a.left() > 0 || t.p.sealed:
		return false
	}
	t.p.shared.find(t).allowance = nil
	t.p.unshareIdle(c.opt.Now())
	return true
}

// PauseBorrowing stops, or allows again, all counting of borrowed keys.
func (c *Counter) PauseBorrowing(on bool) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		p.paused = on
		for _, k := range p.shared {
			if a := k.allowance; a != nil && on {
				a.ceiling, a.refusedUntil = a.counted, time.Time{}
				a.number++ // ignore a response that is on its way
			}
		}
		p.mu.Unlock()
	}
}

// ForgetLoans forgets all loans and allowances: all counts are in the store, and the next owners
// read them there.
func (c *Counter) ForgetLoans() {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		for _, k := range p.shared {
			k.loans, k.allowance = nil, nil
		}
		if !p.sealed {
			p.unshareIdle(c.opt.Now())
		}
		p.mu.Unlock()
	}
}
