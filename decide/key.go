package decide

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// Key is the knowledge about the key of a check.
type Key struct {
	// View has its counts, at the present.
	View leaparray.View
	// Values has what is known of the key of a ValuesCheck, in place of View's counters.
	Values leaparray.ValuesView
	// Extra is the sum that the other checks of the operation count of the key.
	Extra int64
	// Reserved are the events of other operations that are decided, and neither confirmed nor
	// undone. They may lie anywhere in a window.
	Reserved int64
	// Lent are the events that others may have admitted and that View lacks. Default: none.
	Lent Loans
	// Credit decides an Acquire in place of the key's limits, for another owner. Default: none.
	Credit Credit
	// Doubtful refuses an Acquire: a mark of the key may exist that View lacks.
	Doubtful bool
}

// Loans are events of a key that others may admit.
type Loans interface {
	// LentWithin returns how many of them may lie in a window of this many milliseconds that ends
	// at a time or later.
	LentWithin(window, at int64, now time.Time) int64
}

// Credit is a share of a key's limits that may be admitted without asking its owner.
type Credit interface {
	// AnswerCheck answers a check of n events at ts.
	AnswerCheck(n int64, v leaparray.View, ts int64, now time.Time, r *twotier.CheckResult)
}

// Change is a change of the key of a check.
type Change struct {
	Check int
	Kind  ChangeKind
	// At is the time of the events, in unix milliseconds.
	At int64
	// N is the number of events, negative if they are taken back.
	N int64
}

// ChangeKind is a kind of [Change].
type ChangeKind uint8

// Kinds of changes.
const (
	// Count counts N events in the bucket of At.
	Count ChangeKind = iota
	// Take takes -N events back from the newest buckets.
	Take
	// Mark adds N to the millisecond At, which lies ahead: the end of a lease or a ban.
	Mark
	// See adds the values of the check, which were seen at At. N is their number.
	See
)

// BanEnd returns the end of the last ban in a view of a ban's key, in unix milliseconds, or 0 if
// none ends after now. A ban is an event at the millisecond in which it ends, so a new length in
// the rule changes no existing ban. If several writers have started one independently, the last to
// end counts.
func BanEnd(v leaparray.View) (end int64) {
	ends := func(at leaparray.Stretch, _ int64) bool {
		if last := at.End() - 1; last > max(end, v.Now) && v.Value(at) > 0 {
			end = last
		}
		return true
	}
	v.Ladder.EachCell(v.A, ends)
	v.Ladder.EachCell(v.B, ends)
	return end
}

// OpenLeases returns the number of leases in a view of a lease's key that have not ended. A lease
// is an event at the millisecond in which it ends. Events that lie ahead never fold, so wider
// buckets hold leases that have ended.
func OpenLeases(v leaparray.View) (open int64) {
	eachOpen(v, func(_, n int64) { open += n })
	return max(0, open)
}

// eachOpen calls fn with the end of each open lease, and with how many end then.
func eachOpen(v leaparray.View, fn func(end, n int64)) {
	visit := func(at leaparray.Stretch, n int64) bool {
		if at.Width == 1 && at.Start > v.Now {
			fn(at.Start, n)
		}
		return true
	}
	v.Ladder.EachCell(v.A, visit)
	v.Ladder.EachCell(v.B, visit)
}
