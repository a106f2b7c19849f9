package syncer

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
)

// RetryAfter of a refusal, in milliseconds: for a key whose past is unknown, and for a refusal
// caused only by reservations.
const (
	coldRetry     = 1000
	reservedRetry = 50
)

// evaluate decides an operation whose partitions are locked and whose keys are as warm as they will
// get, and counts if the decision allows it. It reports whether anything was counted.
func (k *call) evaluate(res *twotier.Result) (counted bool, err error) {
	op := k.op
	k.markUsed()
	if op.Kind == twotier.Add {
		if err := k.checkReach(); err != nil {
			return false, err
		}
		if err := k.checkRoom(); err != nil {
			return false, err
		}
		if err := k.makeEntries(); err != nil {
			return false, err
		}
		k.count()
	}
	if err := k.compareAll(res); err != nil {
		return false, err
	}
	k.setSource(res)
	switch {
	case op.Kind == twotier.Add:
		k.setTimes(res)
		return true, nil
	case op.Kind == twotier.Count:
		return false, nil
	case !res.Allowed && (k.reservation != nil || !op.CountsRefused(res)):
		return k.startRefusalBans(res)
	case op.DryRun:
		k.refusedCounts = !res.Allowed
		k.includeCounted(res)
		return false, nil
	}
	if err := k.checkTaken(); err != nil {
		return false, err
	}
	if err := k.checkRoom(); err != nil {
		return false, err
	}
	var starting []int
	if !res.Allowed {
		if starting, err = k.bansToStart(res); err != nil {
			return false, err
		}
	}
	if k.reservation != nil {
		k.reserve()
	} else {
		k.refusedCounts = !res.Allowed
		if err := k.makeEntries(); err != nil {
			return false, err
		}
		k.count()
	}
	if len(starting) > 0 {
		k.startBans(starting, res)
	}
	k.includeCounted(res)
	k.setTimes(res)
	return true, nil
}

// compareAll answers all checks.
func (k *call) compareAll(res *twotier.Result) error {
	res.Allowed = true
	for i := range k.targets {
		r := res.AddCheck()
		if err := k.compare(&k.targets[i], r); err != nil {
			return err
		}
		if r.Refused {
			res.Allowed = false
			if r.RetryAfter < 0 || res.RetryAfter >= 0 && r.RetryAfter > res.RetryAfter {
				res.RetryAfter = r.RetryAfter
			}
		}
	}
	return nil
}

// startRefusalBans starts the bans of an Acquire that counts nothing. It reports whether it has
// started any.
func (k *call) startRefusalBans(res *twotier.Result) (started bool, err error) {
	starting, err := k.bansToStart(res)
	if err != nil {
		return false, err
	}
	k.startBans(starting, res)
	return len(starting) > 0, nil
}

// setTimes records when the checks were counted.
func (k *call) setTimes(res *twotier.Result) {
	if k.op.TakesNewest() {
		return
	}
	for i := range res.Checks {
		switch t := &k.targets[i]; {
		case !k.counts(t):
		case t.credit != nil || t.check.IsLease():
			res.Checks[i].TS = t.stamped
		default:
			res.Checks[i].TS = k.ts
		}
	}
}

// markUsed marks the keys as used. A refusal counts as a use, like a count. Keys that are only read
// are kept longer than unused ones, but may be evicted at once to make room for the next read.
func (k *call) markUsed() {
	age := uint32(0)
	if k.op.Kind == twotier.Count {
		age = keys.EvictableAge
	}
	for i := range k.targets {
		t := &k.targets[i]
		if r := t.p.keys.Find(t.hash, t.ns, t.check.Key); r != 0 {
			sec := t.p.keys.Clock.Seconds(k.present)
			if e := t.p.keys.EntryAt(r); e.IdleSeconds(sec) > age {
				e.SetLastUsed(sec - age)
			}
		}
	}
}

// checkReach refuses an Add before it is counted if one of its limits can't be compared, or if it
// takes counts back and the store can't be asked how many there are.
func (k *call) checkReach() error {
	for i := range k.targets {
		t := &k.targets[i]
		if err := k.checkTakes(t); err != nil {
			return err
		}
		v := k.view(t)
		for j := range t.check.Limits {
			if !v.Covers(t.check.Limits[j].WindowAt(k.ts), k.ts) {
				return k.reachError(t, &t.check.Limits[j])
			}
		}
	}
	return nil
}

// setSource records the origin of the answer.
func (k *call) setSource(res *twotier.Result) {
	res.Source = twotier.SourceMemory
	for i := range k.targets {
		t := &k.targets[i]
		if t.lacksStoreCounts() || t.p.degraded() {
			res.Degraded, res.Source = true, twotier.SourceDegraded
		} else if t.p.ownership == notOwned && !res.Degraded {
			res.Source = t.source()
		}
		var shared *loans.Key
		if len(t.p.shared) > 0 {
			shared = t.sharedKey()
		}
		if shared != nil && !res.Degraded {
			res.AgeMS = max(res.AgeMS, time.Since(shared.ReadAt).Milliseconds())
		} else if k.op.Kind == twotier.Count || res.Degraded || t.p.ownership == notOwned {
			res.AgeMS = max(res.AgeMS, t.p.store.Age(time.Now()))
		}
	}
}

// makeEntries finds the entries of all keys that the operation counts, and makes those that are
// missing.
func (k *call) makeEntries() error {
	for i := range k.targets {
		t := &k.targets[i]
		if !k.counts(t) {
			continue
		}
		r, _, err := t.ensureEntry(k.present)
		if err != nil {
			return err
		}
		t.ref = r
	}
	return nil
}

// count counts all checks. Their entries exist, see makeEntries.
func (k *call) count() {
	for i := range k.targets {
		t := &k.targets[i]
		if !k.counts(t) {
			continue
		}
		e := t.p.keys.EntryAt(t.ref)
		switch {
		case t.check.IsLease():
			t.countLease(e)
		case k.op.TakesNewest():
			t.p.keys.SubtractNewest(e, t.sp.Ladder, k.now, -t.check.N)
		default:
			if t.stamped = k.ts; t.credit != nil {
				t.stamped = t.credit.Use(t.check.N, k.ts, time.Now())
			}
			t.p.keys.Count(e, t.sp.Ladder, t.stamped, t.check.N, k.now)
			if t.stamped > k.now && t.check.N > 0 {
				t.p.keys.MarkAhead(e, t.sp.Ladder, t.stamped, k.now)
			}
		}
		t.p.markDirty(t.ref, e)
		k.refused = k.refused || e.HasFlag(keys.FlagParked)
	}
}

// counts reports whether an operation that counts counts the target.
func (k *call) counts(t *target) bool {
	return t.check.N != 0 && !(k.refusedCounts && t.check.IsLease())
}

// view returns the synced and pending counts of the target's key.
func (k *call) view(t *target) leaparray.View {
	v := leaparray.View{Ladder: t.sp.Ladder, Now: k.now}
	if t.ref = t.p.keys.Find(t.hash, t.ns, t.check.Key); t.ref != 0 {
		e := t.p.keys.EntryAt(t.ref)
		v.A, v.B = t.p.keys.SyncedOf(e), t.p.keys.PendingOf(e)
	}
	return v
}

func (k *call) compare(t *target, r *twotier.CheckResult) error {
	if k.op.Kind == twotier.Acquire && t.keyRefused {
		return errKeyRefused
	}
	v := k.view(t)
	if t.check.IsLease() {
		if t.sp.DenyCold && t.lacksStoreCounts() {
			return errMarkUnknown
		}
		k.compareLease(t, v, r)
		return nil
	}
	if t.credit != nil && k.op.Kind == twotier.Acquire {
		t.credit.AnswerCheck(t.check.Needed(t.extra), v, k.ts, time.Now(), r)
		return nil
	}
	for i := range t.check.Limits {
		limit := &t.check.Limits[i]
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Bound(), Period: limit.Period}
		ok := false
		if k.op.Kind == twotier.Acquire {
			ok = k.admits(t, v, &lr, r)
		} else {
			var e leaparray.Estimate
			e, ok = v.Count(limit.WindowAt(k.ts), k.ts, k.ts >= k.now)
			// Pending may take back counts that another counter has meanwhile taken back as well.
			lr.Count, lr.Lo, lr.Hi = max(0, e.Count), max(0, e.Lo), max(0, e.Hi)
			lr.BucketMS = e.Width
			lr.Refused = k.op.Kind == twotier.Add && e.Hi > lr.Max
		}
		if !ok {
			return k.reachError(t, limit)
		}
		r.Refused = r.Refused || lr.Refused
		r.Limits = append(r.Limits, lr)
	}
	if k.op.Kind == twotier.Acquire {
		t.setAtLimit(r.Refused)
	}
	// A mark that was not seen may have counted the event.
	if k.op.Kind == twotier.Acquire && t.storeDown &&
		(t.sp.DenyCold || twotier.IsImported(t.ns)) {
		r.Refused, r.RetryAfter = true, max(r.RetryAfter, coldRetry)
	}
	return nil
}

// admits compares one limit of an Acquire with the sum of all its checks of the key, see
// target.extra. It returns false if the limit's window is out of reach.
func (k *call) admits(t *target, v leaparray.View, lr *twotier.LimitResult,
	r *twotier.CheckResult) bool {
	if t.check.IsBan() {
		k.applyBan(t, v, lr, r)
		return true
	}
	at, window := k.ts, lr.Window
	var peak, blur int64
	var ok bool
	if lr.Period == nil {
		peak, blur, ok = v.PeakBlur(window, at)
	} else {
		window, peak, blur, ok = sumPeriod(lr.Period, v, at)
	}
	if !ok {
		return false
	}
	peak = max(0, peak) // as in compare
	lr.Count, lr.Lo, lr.Hi, lr.BucketMS = peak, peak, peak, blur
	own := t.check.Needed(t.extra)
	n := own
	if len(t.p.reservations) > 0 {
		n += t.p.reservations.ReservedEvents(t.ns, t.check.Key)
	}
	if len(t.p.shared) > 0 {
		lent := k.lentWithin(t, window)
		lr.Hi += lent
		n += lent
	}
	if peak+n <= lr.Max {
		return true
	}
	lr.Refused = true
	retry := int64(reservedRetry)
	switch {
	case peak+own <= lr.Max:
	case lr.Period == nil:
		retry = v.RetryAfter(window, at, own, lr.Max)
	default:
		retry = waitForNextPeriod(lr, at, own)
	}
	if r.RetryAfter >= 0 && (retry < 0 || retry > r.RetryAfter) {
		r.RetryAfter = retry
	}
	return true
}

// lentWithin returns how many lent events of the target's key may lie in a window that ends at ts
// or later. An event of the past is in windows that have ended, and ended loans may be in these.
func (k *call) lentWithin(t *target, window int64) int64 {
	if shared := t.sharedKey(); shared != nil {
		return shared.LentWithin(window, min(k.ts, k.now), time.Now())
	}
	return 0
}

// includeCounted adds an admitted Acquire's own counts to its figures.
func (k *call) includeCounted(res *twotier.Result) {
	for i := range k.targets {
		if k.refusedCounts && k.targets[i].check.IsLease() {
			continue
		}
		n := k.targets[i].check.N + k.targets[i].extra
		for j := range res.Checks[i].Limits {
			lr := &res.Checks[i].Limits[j]
			lr.Count, lr.Lo, lr.Hi = lr.Count+n, lr.Lo+n, lr.Hi+n
		}
	}
}

func (k *call) reachError(t *target, limit *twotier.Limit) error {
	return twotier.OutOfReach(k.op, t.sp.Ladder, limit.WindowAt(k.ts), k.ts, k.now)
}
