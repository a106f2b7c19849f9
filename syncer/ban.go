package syncer

import (
	"bytes"
	"time"

	"twotier.dev/twotier/leaparray"
)

// Ban turns a check with N 0 of an Acquire into a ban on the key of the last preceding check whose
// N is not 0: a counter that holds the end of that key's ban. Its only limit has Max 0 and, as its
// Window, the length of a new ban; an active ban keeps its own end. NS and Key come from [BanKey],
// so the ban has the partition of its key.
//
// Nothing is counted while a ban is active, not even with CountDenied. If none is active, and one
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

// BanLadder returns the ladder of all bans.
func BanLadder() *leaparray.Ladder {
	l, err := leaparray.NewLadder(leaparray.DefaultExact,
		leaparray.Level{Width: time.Minute, Count: int(MaxBan / time.Minute)})
	if err != nil {
		panic(err) // impossible with constant levels
	}
	return l
}

// bansOf is the prefix of the namespaces of bans. The namespace of the banned keys follows it.
const bansOf = BanNamespace + "/"

// BanKey returns the namespace and the key that count the ban on a key under a rule. The name of
// the rule has no slash.
func BanKey(ns []byte, rule string, key []byte) (banNS, banKey []byte) {
	if len(ns) == 0 {
		ns = []byte(DefaultNamespace)
	}
	banNS = append(append(make([]byte, 0, len(bansOf)+len(ns)), bansOf...), ns...)
	banKey = append(make([]byte, 0, len(rule)+1+len(key)), rule...)
	return banNS, append(append(banKey, '/'), key...)
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

// IsBan reports whether a namespace holds bans.
func IsBan(ns []byte) bool {
	return len(ns) > len(bansOf) && ns[0] == '@' && string(ns[:len(bansOf)]) == bansOf
}

// bannedKey returns the namespace and the key that a ban applies to.
func bannedKey(ns, key []byte) (_, _ []byte) {
	return ns[len(bansOf):], key[bytes.IndexByte(key, '/')+1:]
}

// mayBan reports whether some of the operation's checks are bans.
func (op *Op) mayBan() bool {
	for i := 0; i < len(op.Checks) && op.Kind == Acquire; i++ {
		if op.Checks[i].N == 0 {
			return true
		}
	}
	return false
}

// Banned reports whether the operation had this result because of an earlier ban.
func (op *Op) Banned(res *Result) bool {
	for i := 1; i < min(len(op.Checks), len(res.Checks)) && op.Kind == Acquire; i++ {
		if r := &res.Checks[i]; op.Checks[i].N == 0 && r.Refused && r.TS == 0 {
			return true
		}
	}
	return false
}

// startedBan reports whether the operation, which had this result, has started a ban.
func (op *Op) startedBan(res *Result) bool {
	for i := 1; i < min(len(op.Checks), len(res.Checks)) && op.Kind == Acquire; i++ {
		if r := &res.Checks[i]; op.Checks[i].N == 0 && r.Refused && r.TS != 0 {
			return true
		}
	}
	return false
}

// breaches reports whether a refused Acquire breaches one of the ban's limits by counts alone, and
// not only because of others' reservations and loans.
func (t *target) breaches(r *CheckResult, b Ban) bool {
	for i := int(b.From); i < min(int(b.To), len(r.Limits)); i++ {
		lr := &r.Limits[i]
		if lr.Refused && lr.Count+t.check.N+t.extra > lr.Max {
			return true
		}
	}
	return false
}

// breached returns the targets whose bans an Acquire starts, if it was refused. The partitions are
// locked. All entries are found or made before the first is counted.
func (k *call) breached(res *Result) (starting []int, err error) {
	if res.Allowed || k.op.DryRun {
		return nil, nil
	}
	banned := 0
	for i := range k.targets {
		t := &k.targets[i]
		if t.check.N != 0 {
			banned = i
			continue
		}
		if res.Checks[i].Refused || len(t.check.Limits) != 1 ||
			!k.targets[banned].breaches(&res.Checks[banned], t.check.Ban) {
			continue
		}
		switch {
		case t.p.draining:
			return nil, ErrClosed
		case !k.admission.admits(t):
			return nil, ErrBehind
		}
		starting = append(starting, i)
	}
	for _, i := range starting {
		t := &k.targets[i]
		if t.ref, _, err = t.entry(k.present); err != nil {
			return nil, err
		}
	}
	return starting, nil
}

// startBans starts the bans of these targets.
func (k *call) startBans(starting []int, res *Result) {
	for _, i := range starting {
		k.startBan(&k.targets[i], &res.Checks[i])
		if retry := res.Checks[i].RetryAfter; res.RetryAfter >= 0 {
			res.RetryAfter = max(res.RetryAfter, retry)
		}
	}
}

// startBan counts a ban, unless another check of the operation has just done that.
func (k *call) startBan(t *target, r *CheckResult) {
	lr, l := &r.Limits[0], t.sp.ladder
	if BanEnd(k.view(t)) <= k.now {
		e := t.p.keys.entry(t.ref)
		t.p.keys.addPending(e, l, leaparray.Moment(k.now+lr.Window), 1)
		t.p.enlist(t.ref, e)
		k.refused = k.refused || e.has(flagParked)
	}
	k.forbids(t, k.view(t), lr, r)
	t.markLimit(true)
	r.TS = k.now
}

// forbids compares an Acquire with the ban that a check stands for, and fills in both results. An
// active ban refuses all callers now, even for an event of the past.
func (k *call) forbids(t *target, v leaparray.View, lr *LimitResult, r *CheckResult) {
	lr.BucketMS = 1
	if end := BanEnd(v); end > k.now {
		lr.Refused, lr.Count, lr.Lo, lr.Hi = true, 1, 1, end
		r.Refused, r.RetryAfter = true, end-k.now
	}
}
