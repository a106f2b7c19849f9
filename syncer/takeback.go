package syncer

import (
	"time"

	"twotier.dev/twotier/leaparray"
)

// shortFor is the age of a hold from which on counts of it that the store lacks are lost: the
// counter that made them has ended, or is paused for longer than that.
const shortFor = time.Minute

// checkTaken returns why an Acquire may not take counts back, or nil.
func (k *call) checkTaken() error {
	for i := range k.targets {
		if err := k.checkTakes(&k.targets[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkTakes returns why the target's counts can't be taken back, or nil: the store can't be asked
// how many there are, or others may have some.
func (k *call) checkTakes(t *target) error {
	switch {
	case t.check.N >= 0:
		return nil
	case k.Op.Reserves():
		return errTakesReserved
	case t.lacksStoreCounts():
		return errStoreDown
	case t.fresh && !t.check.IsLease() && k.isShort(t):
		return errNotStored
	case !k.Op.Recalled && t.p.ownership == owned && !t.check.IsLease() && t.mayBeLent():
		return ErrLent
	}
	return nil
}

// isShort reports whether there is less to take back than a hold has counted, and counts of it may
// still arrive in the store: another counter has them, which is paused or cut off from this one.
func (k *call) isShort(t *target) bool {
	need := -t.check.N
	k.view(t).SelectAt(k.TS, need, func(_ leaparray.Stretch, n int64) { need -= n })
	return need > 0 && (!t.loaded || k.present-k.TS < shortFor.Milliseconds())
}
