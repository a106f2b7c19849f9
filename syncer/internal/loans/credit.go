package loans

import (
	"bytes"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/leaparray"
)

// Credit is how much of a key another counter lets this one count: the borrower's side of a loan,
// see [twotier.LoanRequest].
type Credit struct {
	Loan   string // its name
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

// NewCredit returns an empty credit under a loan that this request begins.
func NewCredit(q *twotier.LoanRequest) *Credit {
	return &Credit{Loan: q.Loan, limits: slices.Clone(q.Limits)}
}

// remaining returns how many more events may be counted. It is 0 if the owner has taken back more
// than was left.
func (c *Credit) remaining() int64 { return max(0, c.ceiling-c.counted) }

// Valid reports whether the credit is still running. It ends for the borrower no later than for the
// owner, because the borrower measures its time from before the request.
func (c *Credit) Valid(now time.Time) bool {
	return elapsed.Between(c.asked, now) < twotier.LoanTime
}

// Use counts n events that happen now, and returns their time in unix milliseconds. The owner must
// not forget an event sooner than its own clock allows, and this counter's clock may be behind. So
// the time is at least that of the owner's clock, assuming that the owner read it right after the
// request was made.
func (c *Credit) Use(n, ms int64, now time.Time) (at int64) {
	byOwner := c.ownerNow + elapsed.Between(c.asked, now).Milliseconds() + 1
	at = max(ms, byOwner)
	c.latest = max(c.latest, at)
	c.counted += n
	return at
}

// isPast reports whether the owner's clock has certainly passed a time. An event in the owner's
// future might be missing from some of its windows if the owner already saw it.
func (c *Credit) isPast(ms int64, now time.Time) bool {
	return c.ownerNow+now.Sub(c.answered).Milliseconds() >= ms
}

// Covers reports whether the credit is enough to decide about a check of an operation. extra is the
// sum of the operation's other checks of the key.
func (c *Credit) Covers(op *twotier.Op, check *twotier.Check, extra int64, now time.Time) bool {
	if !op.MayBorrow() || op.Kind == twotier.Acquire && !slices.Equal(check.Limits, c.limits) {
		return false
	}
	if check.Needed(extra) <= c.remaining() {
		return true
	}
	c.missed += check.N
	return op.Kind == twotier.Acquire && now.Before(c.refusedUntil) &&
		check.N <= c.limits[c.refusedBy].Max
}

// AnswerCheck answers a check of n events at ts from the credit. The owner's count is at least the
// one in v, and each limit has at least the rest of the credit left.
func (c *Credit) AnswerCheck(n int64, v leaparray.View, ts int64, now time.Time,
	r *twotier.CheckResult) {
	left := c.remaining()
	refused := n > left
	for i := range c.limits {
		limit := &c.limits[i]
		peak, blur, _ := v.PeakBlur(limit.Window, ts)
		peak = max(0, peak) // as for an owner
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Max, Count: peak, Lo: peak,
			Hi: max(peak, limit.Max-left), BucketMS: blur}
		if lr.Refused = refused && i == c.refusedBy; lr.Refused {
			lr.Count = max(peak, limit.Max)
			lr.Lo, lr.Hi = lr.Count, lr.Count
		}
		r.Limits = append(r.Limits, lr)
	}
	if r.Refused = refused; refused {
		r.RetryAfter = max(1, c.refusedUntil.Sub(now).Milliseconds())
	}
}

// Needed returns how many events of the key were needed since the loan began, including those that
// found no room.
func (c *Credit) Needed() int64 { return c.counted + c.missed }

// FillRequest completes the next request: it asks for enough events to have spare ones left, and
// gives back the excess if there are far more.
func (c *Credit) FillRequest(q *twotier.LoanRequest, spare int64) {
	c.number++
	c.ceiling = max(c.counted, min(c.ceiling, c.counted+2*spare))
	q.Number, q.Ceiling, q.InStore = c.number, c.ceiling, c.inStore
	q.Want = max(0, spare-c.remaining())
}

// RecordStored records how many of the counted events the store has acknowledged. last is the
// ticket of the latest count, and acked the last acknowledged one. All is false if the store lacks
// counts in spite of that.
func (c *Credit) RecordStored(last, acked uint64, all bool, now time.Time) {
	if c.marked == c.inStore {
		c.marked, c.markedLatest, c.ticket = c.counted, c.latest, last
	}
	if all && acked >= c.ticket && c.isPast(c.markedLatest, now) {
		c.inStore = c.marked
	}
}

// Accept applies the owner's response to a request made at asked. It ignores a response to any
// request but the last, because the owner may have received a newer one since.
func (c *Credit) Accept(r *twotier.LoanResponse, asked, now time.Time) {
	if c.number != r.Number {
		return
	}
	c.ceiling, c.asked, c.answered, c.ownerNow = r.Ceiling, asked, now, r.Now
	if c.refusedUntil = asked; r.RefusedBy >= 0 && r.RefusedBy < len(c.limits) {
		c.refusedBy = r.RefusedBy
		c.refusedUntil = asked.Add(time.Duration(r.Refused) * time.Millisecond)
	}
}

// IsRepaid reports whether this request, the last one, has confirmed to the owner that the store
// has all events counted.
func (c *Credit) IsRepaid(q *twotier.LoanRequest) bool {
	return c.number == q.Number && q.Ceiling == q.InStore && c.remaining() == 0
}

// Pause gives the rest of the credit back, and ignores a response that is on its way.
func (c *Credit) Pause() {
	c.ceiling, c.refusedUntil = c.counted, time.Time{}
	c.number++
}

// Reservations holds the reserved events of a partition's keys. They count as used in decisions,
// but are neither visible to reads nor in the store.
type Reservations []reserved

// reserved is one key's part of a reservation.
type reserved struct {
	id      string
	ns, key []byte
	n       int64
}

// Add reserves n events of a key under an id. It keeps the names.
func (r *Reservations) Add(id string, ns, key []byte, n int64) {
	*r = append(*r, reserved{id, ns, key, n})
}

// ReservedEvents returns the number of reserved events of a key.
func (r Reservations) ReservedEvents(ns, key []byte) (n int64) {
	for i := range r {
		if bytes.Equal(r[i].key, key) && bytes.Equal(r[i].ns, ns) {
			n += r[i].n
		}
	}
	return n
}

// Remove removes a reservation. It reports whether there was one.
func (r *Reservations) Remove(id string) bool {
	before := len(*r)
	*r = slices.DeleteFunc(*r, func(h reserved) bool { return h.id == id })
	return len(*r) < before
}
