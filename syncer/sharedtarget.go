package syncer

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
)

// makeShared returns the shared key of the target. It makes the key shared if necessary. The
// partition is locked.
func (t *target) makeShared(now int64) (*loans.Key, error) {
	if k := t.sharedKey(); k != nil {
		return k, nil
	}
	_, e, err := t.ensureEntry(now)
	if err != nil {
		return nil, err
	}
	e.SetFlags(keys.FlagShared)
	return t.p.shareKey(t.ns, t.check.Key), nil
}

// sharedKey returns the shared key of the target, or nil if its key is not shared.
func (t *target) sharedKey() *loans.Key { return t.p.shared.Find(t.ns, t.check.Key) }

// mayBeLent reports whether others may have counts of the target's key that this counter does not
// see yet.
func (t *target) mayBeLent() bool {
	if len(t.p.shared) == 0 {
		return false
	}
	k := t.sharedKey()
	return k != nil && k.IsLent(time.Now())
}

// hasRecentRead reports whether the store has reported its counts of a shared key recently enough,
// see Counter.MaxStaleness.
func (t *target) hasRecentRead() bool {
	k := t.sharedKey()
	return k != nil && time.Since(k.ReadAt) <= t.p.readWithin
}

// source returns the source of an answer about another counter's key while the store can be
// reached.
func (t *target) source() twotier.Source {
	if t.borrowed {
		return twotier.SourceNear
	}
	return twotier.SourceFallback
}

// claimCredit reports whether this counter may execute its part of an operation on another one's
// key. The partition is locked.
func (t *target) claimCredit(op *twotier.Op) bool {
	t.credit, t.borrowed = nil, false
	if t.p.ownership != notOwned || len(t.p.shared) == 0 || t.p.degraded() {
		return false
	}
	k, now := t.sharedKey(), time.Now()
	if k == nil || k.Credit == nil || !k.Credit.Valid(now) {
		return false
	}
	if op.Kind == twotier.Count {
		t.borrowed = op.MayBorrow()
		return t.borrowed
	}
	if t.borrowed = k.Credit.Covers(op, t.check, t.extra, now); t.borrowed {
		t.credit = k.Credit
	}
	return t.borrowed
}
