package syncer

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
)

// breaches reports whether a refused Acquire breaches one of the ban's limits by counts alone, and
// not only because of others' reservations and loans.
func (t *target) breaches(r *twotier.CheckResult, b twotier.Ban) bool {
	for i := int(b.From); i < min(int(b.To), len(r.Limits)); i++ {
		lr := &r.Limits[i]
		if lr.Refused && lr.Count+t.check.Needed(t.extra) > lr.Max {
			return true
		}
	}
	return false
}

// bansToStart returns the targets whose bans an Acquire starts, if it was refused. The partitions
// are locked. All entries are found or made before the first is counted.
func (k *call) bansToStart(res *twotier.Result) (starting []int, err error) {
	if res.Allowed || k.op.DryRun {
		return nil, nil
	}
	banned := 0
	for i := range k.targets {
		t := &k.targets[i]
		if !t.check.IsBan() {
			if !t.check.IsLease() {
				banned = i
			}
			continue
		}
		if res.Checks[i].Refused || len(t.check.Limits) != 1 ||
			!k.targets[banned].breaches(&res.Checks[banned], t.check.Ban) {
			continue
		}
		switch {
		case t.p.draining:
			return nil, twotier.ErrClosed
		case !k.admission.hasRoom(t):
			return nil, twotier.ErrBehind
		}
		starting = append(starting, i)
	}
	for _, i := range starting {
		t := &k.targets[i]
		if t.ref, _, err = t.ensureEntry(k.present); err != nil {
			return nil, err
		}
	}
	return starting, nil
}

// startBans starts the bans of these targets.
func (k *call) startBans(starting []int, res *twotier.Result) {
	for _, i := range starting {
		k.startBan(&k.targets[i], &res.Checks[i])
		if retry := res.Checks[i].RetryAfter; res.RetryAfter >= 0 {
			res.RetryAfter = max(res.RetryAfter, retry)
		}
	}
}

// startBan counts a ban, unless another check of the operation has just done that.
func (k *call) startBan(t *target, r *twotier.CheckResult) {
	lr, l := &r.Limits[0], t.sp.Ladder
	if BanEnd(k.view(t)) <= k.now {
		e := t.p.keys.EntryAt(t.ref)
		t.p.keys.AddPending(e, l, leaparray.Moment(k.now+lr.Window), 1)
		t.p.markDirty(t.ref, e)
		k.refused = k.refused || e.HasFlag(keys.FlagParked)
	}
	k.applyBan(t, k.view(t), lr, r)
	t.setAtLimit(true)
	r.TS = k.now
}

// applyBan compares an Acquire with the ban that a check stands for, and fills in both results. An
// active ban refuses all callers now, even for an event of the past.
func (k *call) applyBan(t *target, v leaparray.View, lr *twotier.LimitResult,
	r *twotier.CheckResult) {
	lr.BucketMS = 1
	if end := BanEnd(v); end > k.now {
		lr.Refused, lr.Count, lr.Lo, lr.Hi = true, 1, 1, end
		r.Refused, r.RetryAfter = true, end-k.now
	}
}
