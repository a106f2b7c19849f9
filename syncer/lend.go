package syncer

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// LoanTime is how long a counter may count what it was lent. It begins when the counter asks.
const LoanTime = time.Second

// loanMargin is how much longer the owner expects what it lent to be counted: the clocks of the two
// counters may differ by that much.
const loanMargin = time.Second

// LoanRequest is what a counter that counts another one's key tells the owner of the key, and what
// it asks for. Everything that a counter borrows of a key, as long as it keeps borrowing, is one
// loan. Its figures only grow, so that a request that got no answer does no harm.
type LoanRequest struct {
	NS, Key []byte
	// Limits are those that the events are counted against: the owner lends only what they allow.
	// Without limits, any number of events may be lent.
	Limits []Limit
	// Loan is the name of the loan, which is used once. Number grows with each of its requests.
	Loan   string
	Number uint64
	// Ceiling is how many events the counter takes the liberty to count in total, which may be less
	// than it was lent. InStore is how many of them the store has acknowledged.
	Ceiling, InStore int64
	// Want is how many more it would like to count.
	Want int64
}

// LoanResponse is the owner's answer.
type LoanResponse struct {
	// Number is that of the request; 0 if the owner did not look at it.
	Number uint64
	// Ceiling is how many events the counter may count in total, within LoanTime of its request.
	Ceiling int64
	// Now is the owner's time in unix milliseconds.
	Now int64
	// Refused is for how many milliseconds the owner will refuse to count a single event more, and
	// RefusedBy the index of the limit that stands in the way the longest.
	Refused   int64
	RefusedBy int
}

// Loan is what the owner of a key knows of a loan, see [LoanRequest].
type Loan struct {
	NS, Key []byte
	Name    string
	Number  uint64
	Ceiling int64
	// Seen is how many of the events the owner has read from the store.
	Seen int64
	// Until is when the last of them may have been counted, in unix milliseconds.
	Until int64
}

// loan is a Loan while its owner decides about the key.
//
// What is lent and not seen stands in the way of decisions as if it were counted, wherever in the
// window it lies. So whatever the borrower counts was provided for before, and no message that is
// late or lost can change that: at most it makes the owner refuse too early.
type loan struct {
	Loan
	heard   time.Time
	inStore int64 // what the borrower said last
	// doubtful: this owner may have given to others what was lent, because it did not make the
	// loan, or had not heard of it for so long that it was over.
	doubtful bool
	cut      int64 // inStore when the round was cut that is reading the key
}

// unseen returns how many events the borrower may have counted, or may still count, that the owner
// does not see.
func (l *loan) unseen() int64 { return l.Ceiling - l.Seen }

// rest returns for how long the borrower may still count: not positive if it can't. It goes by the
// monotonic clock alone, which is never ahead of what the borrower measures.
func (l *loan) rest() time.Duration { return LoanTime + loanMargin - time.Since(l.heard) }

// running reports whether the borrower may still count.
func (l *loan) running() bool { return l.rest() > 0 }

// extend has the loan last until it is over in the owner's time, which may have stepped forward.
func (l *loan) extend(now int64) {
	if rest := l.rest(); rest > 0 {
		l.Until = max(l.Until, now+rest.Milliseconds())
	}
}

// unseenWithin returns how much of the loan may lie in a window of this length that ends at now, or
// later.
func (l *loan) unseenWithin(window, now int64) int64 {
	if l.Until <= now-window && !l.running() {
		return 0
	}
	return l.unseen()
}

// lent returns how many events are lent of the target's key and may lie in a window of this length
// that ends at now, which is not in the future, or later.
func (s sharedKeys) lent(t *target, window, now int64) (n int64) {
	if k := s.find(t); k != nil {
		for i := range k.loans {
			n += k.loans[i].unseenWithin(window, now)
		}
	}
	return n
}

// Lend lends events of a key that this counter decides about, renews the loan, and takes back what
// the borrower has no use for, or what is not there any more. While nothing can be lent, the
// ceiling stays as it is. After an error it may be asked again.
func (c *Counter) Lend(ctx context.Context, q *LoanRequest) (a LoanResponse, err error) {
	op := Op{Kind: Acquire, Checks: []Check{{NS: q.NS, Key: q.Key, N: 1, Limits: q.Limits}}}
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
		return a, ErrNotOwner
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

// adjust lends so many events more, and returns the ceiling to tell the borrower. If the number is
// negative, that many are not there, because the loan is doubtful, or because others decided about
// the key at the same time: the borrower gives them back, or as many as it may not have used. Until
// it says that it has heard so, they still count as lent.
func (l *loan) adjust(more int64) (ceiling int64) {
	if more < 0 {
		return max(l.inStore, l.Ceiling+more)
	}
	l.doubtful = false
	l.Ceiling += more
	return l.Ceiling
}

// loan returns the loan that a request is about, brought up to date with it. A loan that is not
// known was made by an earlier owner, and stands in the way as the borrower says.
func (k *sharedKey) loan(q *LoanRequest) (*loan, error) {
	i := slices.IndexFunc(k.loans, func(l loan) bool { return l.Name == q.Loan })
	if i < 0 {
		i = len(k.loans)
		k.loans = append(k.loans, loan{Loan: Loan{Name: q.Loan}})
	}
	l := &k.loans[i]
	if q.Number <= l.Number {
		return nil, fmt.Errorf("%w: the request is out of date", ErrUnavailable)
	}
	l.Number, l.Ceiling, l.inStore = q.Number, q.Ceiling, min(q.InStore, q.Ceiling)
	l.doubtful = l.doubtful || !l.running()
	return l, nil
}

// spare returns how many more events to lend, at most want, and sets for how long even one would be
// refused. It is negative if more is lent than is left. The target's limits are those of the loan.
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
	// lentFar is the part of what is left of a limit that is lent while much is left, lentNear the
	// part of the limit that is lent in any case.
	lentFar, lentNear = 8, 128
	// leastLent is the least that is worth lending.
	leastLent = 16
)

// lendable returns how many events more one of some borrowers may be lent, of which it has own, if
// all together have lent, and left are left of a limit of most. While all that is lent is below
// 1/128 of the limit, so is what the owner refuses too early because of it. More is lent only while
// many times as much is left.
func lendable(most, left, lent, own, borrowers int64) int64 {
	bound := max(most/lentNear, (left+lent)/lentFar)
	if n := min(left/2, bound/borrowers-own, bound-lent); n >= leastLent {
		return n
	}
	return 0
}

// noteCut notes that a round is being cut that reads a shared key.
func (s sharedKeys) noteCut(e entry) {
	if k := s.of(e); k != nil {
		k.cuts++
		for i := range k.loans {
			k.loans[i].cut = k.loans[i].inStore
		}
	}
}

// noteSeen notes that a round has read a shared key: this counter now sees all that the store had
// when the round was cut.
func (s sharedKeys) noteSeen(e entry) {
	if k := s.of(e); k != nil {
		k.seen = k.cuts
		for i := range k.loans {
			l := &k.loans[i]
			l.Seen = max(l.Seen, min(l.cut, l.Ceiling))
		}
	}
}

// endLoans forgets loans that no longer matter: everything was seen, or has left every window of
// this length. It is called with every flush interval, much more often than a loan takes.
func (k *sharedKey) endLoans(span, now int64) {
	for i := range k.loans {
		k.loans[i].extend(now)
	}
	k.loans = slices.DeleteFunc(k.loans, func(l loan) bool {
		return !l.running() && (l.unseen() == 0 || l.unseenWithin(span, now) == 0)
	})
}

// appendLoans appends all loans, to be handed off.
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

// takeLoans takes over loans that another counter made.
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
