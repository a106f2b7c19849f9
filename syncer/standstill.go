package syncer

import "twotier.dev/twotier"

// This file keeps the counter from deciding by what it knew before the process stood still. Other
// counters may have admitted events meanwhile, in its place or as the new owners of its partitions.
//
// Under the locks of the partitions, a call compares the time that it has read with the time that
// the pulse covers, and is refused like one whose partition has moved. If the process stands still
// after that reading, and goes on before the owner of Options.Pulse has called StopOwning, the call
// still counts: that shows when its answer is due, and the answer is no admission.

// stoodStill reports whether the process stood still before the call last read the clock. Reads
// don't admit anything, and may be as old as the standstill.
func (k *call) stoodStill() bool {
	return k.pulse != nil && k.Op.Kind != twotier.Count && !k.pulse.Covers(k.present)
}

// isAdmission reports whether an operation with this result admits events.
func isAdmission(op *twotier.Op, res *twotier.Result) bool {
	return op.Kind == twotier.Acquire && res.Allowed && !op.DryRun
}

// withdraw returns the error of an admitted operation during which the process stood still. Its
// counts stay. A reservation is undone: nobody has relied on it yet.
func (c *Counter) withdraw(op *twotier.Op) error {
	if op.Reserves() && c.Undo(op) {
		return twotier.ErrNotOwner
	}
	return errStoodStill
}
