package twotier

import "time"

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
	for i := range r.Bans {
		if r.Bans[i].Check == check && r.Bans[i].Rule == rule {
			return true
		}
	}
	return false
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
	for i := range res.Bans {
		if !res.Bans[i].Started {
			return true
		}
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
