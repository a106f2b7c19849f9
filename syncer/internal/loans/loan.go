package loans

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// Keys holds a partition's shared keys, of which there are few.
type Keys []*Key

// Key is a key that several counters count at the same time, because it is in higher demand than
// one of them can serve: its owner, and the borrowers of some of the room left in its limits.
type Key struct {
	// NS is empty for the default namespace. The names are copies.
	NS, Name []byte
	// ReadAt is when the store last reported the counts flushed by others.
	ReadAt time.Time
	// Log is the size of the key's log in the store when the key was last read.
	Log int
	// Credit is set at a borrower.
	Credit *Credit

	reads uint64 // how many rounds were cut that read the key
	seen  uint64 // the number of the last read that was answered
	loans []loan // at the owner
}

// Find returns a shared key, or nil if the key is not shared.
func (s Keys) Find(ns, key []byte) *Key {
	for _, k := range s {
		if bytes.Equal(k.Name, key) && bytes.Equal(k.NS, ns) {
			return k
		}
	}
	return nil
}

// Share returns the shared key with this name. It adds the key if necessary.
func (s *Keys) Share(ns, key []byte) (k *Key, added bool) {
	if k = s.Find(ns, key); k != nil {
		return k, false
	}
	k = &Key{NS: bytes.Clone(ns), Name: bytes.Clone(key)}
	*s = append(*s, k)
	return k, true
}

// BeginRead records that a round that reads the key is being cut.
func (k *Key) BeginRead() {
	k.reads++
	for i := range k.loans {
		k.loans[i].reading = k.loans[i].inStore
	}
}

// EndRead records that a round has read the key: this counter now sees everything that the store
// had at the last BeginRead.
func (k *Key) EndRead() {
	k.seen = k.reads
	for i := range k.loans {
		l := &k.loans[i]
		l.Seen = max(l.Seen, min(l.reading, l.Ceiling))
	}
}

// ReadsBegun returns how many reads of the key have begun.
func (k *Key) ReadsBegun() uint64 { return k.reads }

// ReadSince reports whether a read has ended that began after this many others.
func (k *Key) ReadSince(reads uint64) bool { return k.seen > reads }

// EndLoans drops the loans that no longer matter: all their events were seen, or have left every
// window of length span. It must be called often during a loan's lifetime. It reports whether the
// key is idle, neither lent nor borrowed.
func (k *Key) EndLoans(span, ms int64, now time.Time) (idle bool) {
	for i := range k.loans {
		k.loans[i].extend(ms, now)
	}
	k.loans = slices.DeleteFunc(k.loans, func(l loan) bool {
		return !l.running(now) && (l.unseen() == 0 || l.unseenWithin(span, ms, now) == 0)
	})
	return k.Credit == nil && len(k.loans) == 0
}

// Cancel drops the key's loans and its credit.
func (k *Key) Cancel() { k.loans, k.Credit = nil, nil }

// AppendLoans appends all loans, for a handoff.
func (s Keys) AppendLoans(list []twotier.Loan) []twotier.Loan {
	for _, k := range s {
		for j := range k.loans {
			l := k.loans[j].Loan
			l.NS, l.Key = k.NS, k.Name
			list = append(list, l)
		}
	}
	return list
}

// Adopt takes over another counter's loan of the key, unless a request as recent as the loan's last
// one has arrived here already.
func (k *Key) Adopt(l *twotier.Loan, now time.Time) {
	known := slices.ContainsFunc(k.loans, func(o loan) bool {
		return o.Name == l.Name && o.Number >= l.Number
	})
	if !known {
		k.loans = slices.DeleteFunc(k.loans, func(o loan) bool { return o.Name == l.Name })
		k.loans = append(k.loans, loan{Loan: *l, requestedAt: now, unconfirmed: true})
	}
}

// margin is how much longer the owner assumes that a borrower may count, because their clocks may
// differ by that much.
const margin = time.Second

// NeedsCounts reports whether the response to a request depends on the key's counts.
func NeedsCounts(q *twotier.LoanRequest) bool {
	return len(q.Limits) > 0 && (q.Want > 0 || q.Ceiling > q.InStore)
}

// loan is a [twotier.Loan] while its owner decides about the key.
type loan struct {
	twotier.Loan
	requestedAt time.Time
	inStore     int64 // as last reported by the borrower
	// unconfirmed: this owner may have given the lent events to others, because it did not make the
	// loan, or received no request for so long that the loan was over.
	unconfirmed bool
	reading     int64 // inStore at the cut of the round that is reading the key
}

// unseen returns how many events the borrower may have counted, or may still count, that the owner
// does not see.
func (l *loan) unseen() int64 { return l.Ceiling - l.Seen }

// remainingTime returns for how long the borrower may still count; it is not positive if the loan
// is over. It relies on the monotonic clock alone, which is never ahead of the borrower's
// measurement.
func (l *loan) remainingTime(now time.Time) time.Duration {
	return twotier.LoanTime + margin - now.Sub(l.requestedAt)
}

// running reports whether the borrower may still count.
func (l *loan) running(now time.Time) bool { return l.remainingTime(now) > 0 }

// extend prolongs the loan to its end in the owner's time, which may have stepped forward.
func (l *loan) extend(ms int64, now time.Time) {
	if rest := l.remainingTime(now); rest > 0 {
		l.Until = max(l.Until, ms+rest.Milliseconds())
	}
}

// unseenWithin returns how much of the loan may lie in a window of this length that ends at ms or
// later.
func (l *loan) unseenWithin(window, ms int64, now time.Time) int64 {
	if l.Until <= ms-window && !l.running(now) {
		return 0
	}
	return l.unseen()
}

// LentWithin returns how many lent events of the key may lie in a window of this length that ends
// at ms or later. ms is not in the future.
func (k *Key) LentWithin(window, ms int64, now time.Time) (n int64) {
	for i := range k.loans {
		n += k.loans[i].unseenWithin(window, ms, now)
	}
	return n
}

// IsLent reports whether borrowers may have counts of the key that this counter does not see yet.
func (k *Key) IsLent(now time.Time) bool {
	return slices.ContainsFunc(k.loans, func(l loan) bool {
		return l.running(now) || l.unseen() > 0
	})
}

// Counts are the owner's counts of a key, which a loan's limits are compared with.
type Counts struct {
	View leaparray.View
	// At is the end of the windows, in unix milliseconds.
	At int64
	// Reserved is the number of reserved events.
	Reserved int64
}

// Lend renews a loan of the key or makes a new one, lends more events, and takes back events that
// the borrower does not need or that are no longer available. While nothing can be lent, the
// ceiling stays as it is. counts is nil if the counts of the key are unknown. The error of an
// outdated request is an ErrUnavailable.
func (k *Key) Lend(q *twotier.LoanRequest, counts *Counts, ms int64,
	now time.Time) (r twotier.LoanResponse, err error) {
	l, err := k.update(q, now)
	if err != nil {
		return r, err
	}
	l.requestedAt = now
	l.extend(ms, now)
	more := int64(0)
	switch {
	case counts != nil && (q.Want > 0 || q.Ceiling > q.InStore || l.unconfirmed):
		more = k.moreToLend(q, l, counts, ms, now, &r)
	case l.unconfirmed:
		more = -l.Ceiling
	}
	r.Number, r.Ceiling, r.Now = q.Number, l.adjust(more), ms
	return r, nil
}

// update returns the loan that a request is about, updated from the request. An unknown loan was
// made by an earlier owner, and counts as lent as the borrower reports it.
func (k *Key) update(q *twotier.LoanRequest, now time.Time) (*loan, error) {
	i := slices.IndexFunc(k.loans, func(l loan) bool { return l.Name == q.Loan })
	if i < 0 {
		i = len(k.loans)
		k.loans = append(k.loans, loan{Loan: twotier.Loan{Name: q.Loan}})
	}
	l := &k.loans[i]
	if q.Number <= l.Number {
		return nil, fmt.Errorf("%w: the request is out of date", twotier.ErrUnavailable)
	}
	l.Number, l.Ceiling, l.inStore = q.Number, q.Ceiling, min(q.InStore, q.Ceiling)
	l.unconfirmed = l.unconfirmed || !l.running(now)
	return l, nil
}

// adjust lends this many events more, and returns the ceiling for the borrower. If more is
// negative, -more of the lent events are not available, because the loan is unconfirmed, or because
// others decided about the key at the same time: the borrower gives them back, or as many as it may
// not have used. They count as lent until the borrower confirms it.
func (l *loan) adjust(more int64) (ceiling int64) {
	if more < 0 {
		return max(l.inStore, l.Ceiling+more)
	}
	l.unconfirmed = false
	l.Ceiling += more
	return l.Ceiling
}

// moreToLend returns how many more events to lend, at most Want, and sets for how long even one
// would be refused. It is negative if more is lent than is left.
func (k *Key) moreToLend(q *twotier.LoanRequest, l *loan, c *Counts, ms int64, now time.Time,
	r *twotier.LoanResponse) (n int64) {
	borrowers := k.borrowers(now)
	n = q.Want
	for i := range q.Limits {
		limit := &q.Limits[i]
		peak, ok := c.View.Peak(limit.Window, c.At)
		if !ok {
			return -l.Ceiling
		}
		if max(0, peak)+1 > limit.Max {
			if retry := c.View.RetryAfter(limit.Window, c.At, 1, limit.Max); retry > r.Refused {
				r.Refused, r.RefusedBy = retry, i
			}
		}
		lent := k.LentWithin(limit.Window, ms, now)
		left := limit.Max - max(0, peak) - c.Reserved - lent
		n = min(n, left, lendable(limit.Max, left, lent, l.unseen(), borrowers))
	}
	return n
}

// borrowers returns how many loans are running, at least one.
func (k *Key) borrowers(now time.Time) (n int64) {
	for i := range k.loans {
		if k.loans[i].running(now) {
			n++
		}
	}
	return max(1, n)
}

const (
	// While much of a limit is left, 1/lentFar of that is lent; 1/lentNear of the limit is lent in
	// any case.
	lentFar, lentNear = 8, 128
	// leastLent is the smallest number of events worth lending.
	leastLent = 16
)

// lendable returns how many more events to lend to one of some borrowers. own is the unseen part of
// its loan, lent that of all loans, and left the room left in a limit of most. While all loans are
// below 1/128 of the limit, so is the number of events that the owner refuses too early because of
// them. More is lent only while many times as much is left.
func lendable(most, left, lent, own, borrowers int64) int64 {
	bound := max(most/lentNear, (left+lent)/lentFar)
	if n := min(left/2, bound/borrowers-own, bound-lent); n >= leastLent {
		return n
	}
	return 0
}
