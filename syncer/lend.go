package syncer

import (
	"context"
	"fmt"
	"slices"
	"time"
	"twotier.dev/twotier"
)

// LoanTime is how long a loan is valid for its borrower, from the request on.
const LoanTime = time.Second

// loanMargin is how much longer the owner assumes that a borrower may count, because their clocks
// may differ by that much.
const loanMargin = time.Second

// LoanRequest reports a borrower's use of a key to its owner, and asks for more. Everything that a
// counter borrows of a key without interruption is one loan. Its figures only grow, so an
// unanswered request does no harm.
type LoanRequest struct {
	NS, Key []byte
	// Limits bound the loan: the owner lends only as many events as they allow. Without limits, it
	// may lend any number.
	Limits []twotier.Limit
	// Loan is the name of the loan, which is used once. Number grows with each of its requests.
	Loan   string
	Number uint64
	// Ceiling is how many events the borrower may count in total, by its own account, which may be
	// less than it was lent. InStore is how many of them the store has acknowledged.
	Ceiling, InStore int64
	// Want is how many more events the borrower asks for.
	Want int64
}

// LoanResponse is the owner's answer.
type LoanResponse struct {
	// Number is the number of the request; 0 if the owner did not process it.
	Number uint64
	// Ceiling is how many events the borrower may count in total, within LoanTime of its request.
	Ceiling int64
	// Now is the owner's time in unix milliseconds.
	Now int64
	// Refused is for how many milliseconds the owner will refuse a single event more, and RefusedBy
	// the index of the limit that refuses the longest.
	Refused   int64
	RefusedBy int
}

// Loan is the owner's record of a loan, see [LoanRequest].
type Loan struct {
	NS, Key []byte
	Name    string
	Number  uint64
	Ceiling int64
	// Seen is how many of the events the owner has read from the store.
	Seen int64
	// Until is the latest possible time of the last of them, in unix milliseconds.
	Until int64
}

// loan is a Loan while its owner decides about the key.
//
// Events that are lent but not seen count as used in decisions, wherever in the window they may
// lie. So every count of the borrower is provided for beforehand, and a late or lost message can't
// change that: at most it makes the owner refuse too early.
type loan struct {
	Loan
	heard   time.Time
	inStore int64 // as last reported by the borrower
	// doubtful: this owner may have given the lent events to others, because it did not make the
	// loan, or received no request for so long that the loan was over.
	doubtful bool
	cut      int64 // inStore at the cut of the round that is reading the key
}

// unseen returns how many events the borrower may have counted, or may still count, that the owner
// does not see.
func (l *loan) unseen() int64 { return l.Ceiling - l.Seen }

// rest returns for how long the borrower may still count; it is not positive if the loan is over.
// It relies on the monotonic clock alone, which is never ahead of the borrower's measurement.
func (l *loan) rest() time.Duration { return LoanTime + loanMargin - time.Since(l.heard) }

// running reports whether the borrower may still count.
func (l *loan) running() bool { return l.rest() > 0 }

// extend prolongs the loan to its end in the owner's time, which may have stepped forward.
func (l *loan) extend(now int64) {
	if rest := l.rest(); rest > 0 {
		l.Until = max(l.Until, now+rest.Milliseconds())
	}
}

// unseenWithin returns how much of the loan may lie in a window of this length that ends at now or
// later.
func (l *loan) unseenWithin(window, now int64) int64 {
	if l.Until <= now-window && !l.running() {
		return 0
	}
	return l.unseen()
}

// lent returns how many lent events of the target's key may lie in a window of this length that
// ends at now or later. now is not in the future.
func (s sharedKeys) lent(t *target, window, now int64) (n int64) {
	if k := s.find(t); k != nil {
		for i := range k.loans {
			n += k.loans[i].unseenWithin(window, now)
		}
	}
	return n
}

// Lend lends events of a key that this counter decides about, renews the loan, and takes back
// events that the borrower does not need or that are no longer available. While nothing can be
// lent, the ceiling stays as it is. After an error the request may be repeated.
func (c *Counter) Lend(ctx context.Context, q *LoanRequest) (a LoanResponse, err error) {
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{NS: q.NS, Key: q.Key, N: 1,
		Limits: q.Limits}}}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	if err := k.prepare(&c.directory, &op, c.opt.Now()); err != nil {
		return a, err
	}
	if len(q.Limits) > 0 && (q.Want > 0 || q.Ceiling > q.InStore) {
		if err := k.lockWarm(ctx, c.opt.LoadTimeout); err != nil {
			return a, err
		}
	} else {
		k.lock()
	}
	defer k.unlock()
	return k.lend(q)
}

// lend is Lend for a key that is locked, and warm if its limits matter.
func (k *call) lend(q *LoanRequest) (a LoanResponse, err error) {
	t := &k.targets[0]
	if t.p.ownership != owned {
		return a, twotier.ErrNotOwner
	}
	key, err := t.share(k.present)
	if err != nil {
		return a, err
	}
	defer t.p.unshareIdle(k.now)
	l, err := key.loan(q)
	if err != nil {
		return a, err
	}
	l.heard = time.Now()
	l.extend(k.now)
	more := int64(0)
	switch known := !t.unread() && !t.p.degraded() && !t.p.draining; {
	case known && (q.Want > 0 || q.Ceiling > q.InStore || l.doubtful):
		more = k.spare(t, l, q.Want, &a)
	case l.doubtful:
		more = -l.Ceiling
	}
	a.Number, a.Ceiling, a.Now = q.Number, l.adjust(more), k.now
	return a, nil
}

// adjust lends this many events more, and returns the ceiling for the borrower. If more is
// negative, -more of the lent events are not available, because the loan is doubtful, or because
// others decided about the key at the same time: the borrower gives them back, or as many as it may
// not have used. They count as lent until the borrower confirms it.
func (l *loan) adjust(more int64) (ceiling int64) {
	if more < 0 {
		return max(l.inStore, l.Ceiling+more)
	}
	l.doubtful = false
	l.Ceiling += more
	return l.Ceiling
}

// loan returns the loan that a request is about, updated from the request. An unknown loan was made
// by an earlier owner, and counts as lent as the borrower reports it.
func (k *sharedKey) loan(q *LoanRequest) (*loan, error) {
	i := slices.IndexFunc(k.loans, func(l loan) bool { return l.Name == q.Loan })
	if i < 0 {
		i = len(k.loans)
		k.loans = append(k.loans, loan{Loan: Loan{Name: q.Loan}})
	}
	l := &k.loans[i]
	if q.Number <= l.Number {
		return nil, fmt.Errorf("%w: the request is out of date", twotier.ErrUnavailable)
	}
	l.Number, l.Ceiling, l.inStore = q.Number, q.Ceiling, min(q.InStore, q.Ceiling)
	l.doubtful = l.doubtful || !l.running()
	return l, nil
}

// spare returns how many more events to lend, at most want, and sets for how long even one would be
// refused. It is negative if more is lent than is left. The target's limits are the loan's.
func (k *call) spare(t *target, l *loan, want int64, a *LoanResponse) (n int64) {
	v, borrowers := k.view(t), t.p.shared.find(t).borrowers()
	n = want
	for i := range t.check.Limits {
		limit := &t.check.Limits[i]
		peak, ok := v.Peak(limit.Window, k.ts)
		if !ok {
			return -l.Ceiling
		}
		if max(0, peak)+1 > limit.Max {
			if r := v.RetryAfter(limit.Window, k.ts, 1, limit.Max); r > a.Refused {
				a.Refused, a.RefusedBy = r, i
			}
		}
		lent := t.p.shared.lent(t, limit.Window, k.now)
		left := limit.Max - max(0, peak) - t.p.reservations.of(t) - lent
		n = min(n, left, lendable(limit.Max, left, lent, l.unseen(), borrowers))
	}
	return n
}

// borrowers returns how many loans are running.
func (k *sharedKey) borrowers() (n int64) {
	for i := range k.loans {
		if k.loans[i].running() {
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

// noteCut records that a round that reads a shared key is being cut.
func (s sharedKeys) noteCut(e entry) {
	if k := s.of(e); k != nil {
		k.cuts++
		for i := range k.loans {
			k.loans[i].cut = k.loans[i].inStore
		}
	}
}

// noteSeen records that a round has read a shared key: this counter now sees everything that the
// store had when the round was cut.
func (s sharedKeys) noteSeen(e entry) {
	if k := s.of(e); k != nil {
		k.seen = k.cuts
		for i := range k.loans {
			l := &k.loans[i]
			l.Seen = max(l.Seen, min(l.cut, l.Ceiling))
		}
	}
}

// endLoans drops loans that no longer matter: all their events were seen, or have left every window
// of this length. It is called with every flush interval, much more often than a loan takes.
func (k *sharedKey) endLoans(span, now int64) {
	for i := range k.loans {
		k.loans[i].extend(now)
	}
	k.loans = slices.DeleteFunc(k.loans, func(l loan) bool {
		return !l.running() && (l.unseen() == 0 || l.unseenWithin(span, now) == 0)
	})
}

// appendLoans appends all loans, for a handoff.
func (s sharedKeys) appendLoans(list []Loan) []Loan {
	for i := range s {
		for j := range s[i].loans {
			l := s[i].loans[j].Loan
			l.NS, l.Key = s[i].ns, s[i].key
			list = append(list, l)
		}
	}
	return list
}

// takeLoans takes over another counter's loans.
func (b *ledger) takeLoans(list []Loan) {
	for i := range list {
		l := &list[i]
		k := b.shareKey(b.keys.names.hash(l.NS, l.Key), l.NS, l.Key)
		known := slices.ContainsFunc(k.loans, func(o loan) bool {
			return o.Name == l.Name && o.Number >= l.Number
		})
		if !known {
			k.loans = slices.DeleteFunc(k.loans, func(o loan) bool { return o.Name == l.Name })
			k.loans = append(k.loans, loan{Loan: *l, heard: time.Now(), doubtful: true})
		}
	}
}
