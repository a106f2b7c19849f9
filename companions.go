package twotier

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// LeaseNamespace is the namespace whose settings apply to leases. No Options change them.
const LeaseNamespace = "@leases"

const (
	// MaxLease is the longest time that a lease can be asked to last.
	MaxLease = 24 * time.Hour
	// maxLeaseSpan is what a counter of leases covers. LeaseEnd stays within it.
	maxLeaseSpan = MaxLease + time.Hour
)

// leaseSteps is the precision of the end of a lease: it is at most 1/leaseSteps of its length late.
const leaseSteps = 128

// LeaseEnd returns the end of a lease that is to last so many milliseconds from now, rounded up so
// that leases share ends. A counter keeps a cell for each end. So the open leases of a key have at
// most 2*leaseSteps+1 cells if all are of one length, and 2,700 if they are of every length.
func LeaseEnd(now, lasts int64) int64 {
	step := int64(1)
	for 2*step*leaseSteps <= lasts {
		step *= 2
	}
	return (now + lasts + step - 1) / step * step
}

// settledNamespaces are the namespaces of SettledKey, shortest first. The store forgets a lease in
// one of them a few times later than its span.
var settledNamespaces = [...]struct {
	name string
	span time.Duration
}{{"@settled3m", 3 * time.Minute}, {"@settled30m", 30 * time.Minute},
	{"@settled5h", 5 * time.Hour}, {"@settled25h", maxLeaseSpan}}

// CompanionNamespaces returns the namespaces whose settings apply to companions of keys, and how
// long their counts last.
func CompanionNamespaces() map[string]time.Duration {
	all := map[string]time.Duration{BanNamespace: MaxBan, LeaseNamespace: maxLeaseSpan}
	for _, s := range settledNamespaces {
		all[s.name] = s.span
	}
	return all
}

// IsSettledNamespace reports whether the settings of a namespace apply to the marks of settled
// holds, see [SettledKey].
func IsSettledNamespace(name string) bool {
	for _, s := range settledNamespaces {
		if s.name == name {
			return true
		}
	}
	return false
}

// SettledKey returns the namespace and the key of the lease that marks a hold of that name on a key
// as settled. length is how long the hold lasts, in milliseconds. The name has no slash.
func SettledKey(length int64, ns []byte, name string, key []byte) (settledNS, settledKey []byte) {
	at := 0
	for at < len(settledNamespaces)-1 &&
		length+time.Minute.Milliseconds() > settledNamespaces[at].span.Milliseconds() {
		at++
	}
	return companionKey(settledNamespaces[at].name, ns, name, key)
}

// A LeaseCheck takes N leases that last until Check.Until, or returns them if N is negative. It
// counts each in the millisecond in which it ends, in a counter that [LeaseKey] names, so the open
// leases of a key are the counts that lie ahead. The end comes from [LeaseEnd], or a counter may
// have too many cells to keep them apart.
//
// It has one limit, with a Window of 1. Taking refuses if more than Max would be open. Returning
// refuses if fewer leases that end at that moment are open: they have ended, or were returned
// before. A refused operation neither takes nor returns leases, even if it counts otherwise.

// Lease is a lease that a check takes if at most Max leases of its key are open with it. In shadow,
// it is always taken.
type Lease struct {
	Check int
	Max   int64
	// Rule is the name of the rule with this limit, empty if the request has it itself.
	Rule   string
	Shadow bool
}

// LeaseResult is the outcome of a [Lease]: how many are open, with this one if it was taken.
// Refused is set if the limit refused, or would have refused if it were not in shadow.
type LeaseResult struct {
	Lease
	Open    int64
	Refused bool
}

// OpenLeases is a reading of how many leases of a key are open.
type OpenLeases struct {
	Open int64
	// NextEnd is the time in milliseconds until the first of them ends by itself. It is 0 if none
	// is open, or if the leases of the key change too fast to read it.
	NextEnd int64
	// Source and Degraded are as in a [Result].
	Source   Source
	Degraded bool
}

// LeaseVerdict returns whether a limit of a rule on leases, or one of the request itself if rule is
// empty, refused a check, and whether there is one.
func (r *Result) LeaseVerdict(check int, rule string) (refused, judged bool) {
	for i := range r.Leases {
		if l := &r.Leases[i]; l.Check == check && l.Rule == rule {
			refused, judged = refused || l.Refused, true
		}
	}
	return refused, judged
}

// LeaseKey returns the namespace and the key that count the leases of that name on a key. The
// counter has the partition of the key. The name has no slash, and may be empty.
func LeaseKey(ns []byte, name string, key []byte) (leaseNS, leaseKey []byte) {
	return companionKey(LeaseNamespace, ns, name, key)
}

// companionKey returns the namespace and the key of a counter that accompanies a key and has its
// partition: in the namespace that is called companion, a slash and the key's own one.
func companionKey(companion string, ns []byte, name string, key []byte) (_, _ []byte) {
	if len(ns) == 0 {
		ns = []byte(DefaultNamespace)
	}
	of := append(append(make([]byte, 0, len(companion)+1+len(ns)), companion...), '/')
	return append(of, ns...), append(append(append(make([]byte, 0, len(name)+1+len(key)), name...),
		'/'), key...)
}

// Companion returns the namespace whose settings apply to the companions in a namespace, such as
// BanNamespace, or "" if the namespace holds none.
func Companion(ns []byte) string {
	if len(ns) == 0 || ns[0] != '@' {
		return ""
	}
	name, _, found := bytes.Cut(ns, []byte{'/'})
	if !found {
		return ""
	}
	switch string(name) {
	case BanNamespace:
		return BanNamespace
	case LeaseNamespace:
		return LeaseNamespace
	case ImportedNamespace:
		return ImportedNamespace
	case ValuesNamespace:
		return ValuesNamespace
	}
	for _, s := range settledNamespaces {
		if string(name) == s.name {
			return s.name
		}
	}
	return ""
}

// Accompanied returns the namespace and the key that a companion belongs to.
func Accompanied(ns, key []byte) (_, _ []byte) {
	return ns[bytes.IndexByte(ns, '/')+1:], key[bytes.IndexByte(key, '/')+1:]
}

// checkLease returns an error if a lease can't be taken: it would last too long, or has ended
// already.
func (c *Check) checkLease(pos int, now int64) error {
	left := c.Until - now
	switch {
	case c.N == 0 || len(c.Limits) != 1:
		return &InvalidError{Check: pos, Limit: -1, Field: "n",
			Detail: "a lease needs a number and one limit"}
	case c.N < 0 || left > 0 && left <= maxLeaseSpan.Milliseconds():
		return nil
	}
	return &InvalidError{Check: pos, Limit: -1, Field: "hold", Detail: fmt.Sprintf(
		"it would last %s, want at most %s and more than 0", FormatMillis(left),
		FormatMillis(maxLeaseSpan.Milliseconds()))}
}

// LoanTime is how long a loan is valid for its borrower, from the request on.
const LoanTime = time.Second

// LoanRequest reports a borrower's use of a key to its owner, and asks for more. Everything that a
// counter borrows of a key without interruption is one loan. Its figures only grow, so an
// unanswered request does no harm. See package syncer.
type LoanRequest struct {
	NS, Key []byte
	// Limits bound the loan: the owner lends only as many events as they allow. Without limits, it
	// may lend any number.
	Limits []Limit
	// Loan is the name of the loan, which is used once. Number grows with each of its requests.
	Loan   string
	Number uint64
	// Ceiling is how many events the borrower may count in total, by its own account, which may be
	// less than it was lent. InStore is how many of them the store has acknowledged.
	Ceiling, InStore int64
	// Want is how many more events the borrower asks for.
	Want int64
}

// LoanResponse is the owner's response to a [LoanRequest].
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

// Ban describes a BanCheck of an Acquire: a ban on the key of the last preceding EventCheck, in a
// counter that holds the end of that key's ban. Its only limit has Max 0 and, as its
// Window, the length of a new ban; an active ban keeps its own end. NS and Key come from [BanKey],
// so the ban has the partition of its key.
//
// While a ban is active, only Charge counts anything. If none is active, and one
// of the banned check's limits in [From, To) refuses because of its counts, the ban starts: it is
// counted once, in the same decision. Refusals during a ban do not extend it, and a dry run starts
// none. A result with TS reports a ban that the operation has started. In the result of a ban that
// refuses, Hi of the only limit is the end of the ban in unix milliseconds, the same in all answers
// about it.
type Ban struct{ From, To uint16 }

// BanNamespace is the namespace whose settings apply to bans. No Options change them.
const BanNamespace = "@bans"

// MaxBan is the longest time that a ban can last.
const MaxBan = 24 * time.Hour

// BanKey returns the namespace and the key that count the ban on a key under a rule. The name of
// the rule has no slash.
func BanKey(ns []byte, rule string, key []byte) (banNS, banKey []byte) {
	return companionKey(BanNamespace, ns, rule, key)
}

// BanRule is a rule that bans a key for some time after a refusal. The check's limits [From, To)
// belong to the rule, and each of them can start the ban.
type BanRule struct {
	Check    int
	Rule     string
	Window   int64 // the length of the ban in milliseconds
	From, To int
}

// BanResult is an active ban on the key of a check. It caused the refusal of an Acquire or, if
// Started, was started by it. Until is the end of the ban, in unix milliseconds.
type BanResult struct {
	Check   int
	Rule    string
	Until   int64
	Started bool
}

// BannedBy reports whether a ban under a rule is active for a check.
func (r *Result) BannedBy(check int, rule string) bool {
	return slices.ContainsFunc(r.Bans, func(b BanResult) bool {
		return b.Check == check && b.Rule == rule
	})
}

// needsOwner reports whether some checks are about values, or some of an Acquire's are bans or
// leases, or take back.
func (op *Op) needsOwner() bool {
	for i := range op.Checks {
		c := &op.Checks[i]
		if c.Kind != EventCheck || c.N < 0 && op.Kind == Acquire {
			return true
		}
	}
	return false
}

// Banned reports whether the operation had this result because of an earlier ban.
func (op *Op) Banned(res *Result) bool {
	if slices.ContainsFunc(res.Bans, func(b BanResult) bool { return !b.Started }) {
		return true
	}
	for i := 1; i < min(len(op.Checks), len(res.Checks)) && op.Kind == Acquire; i++ {
		if r := &res.Checks[i]; op.Checks[i].IsBan() && r.Refused && r.TS == 0 {
			return true
		}
	}
	return false
}

// startedBan reports whether the operation, which had this result, has started a ban.
func (op *Op) startedBan(res *Result) bool {
	for i := 1; i < min(len(op.Checks), len(res.Checks)) && op.Kind == Acquire; i++ {
		if r := &res.Checks[i]; op.Checks[i].IsBan() && r.Refused && r.TS != 0 {
			return true
		}
	}
	return false
}
