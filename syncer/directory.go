package syncer

// directory finds the partition and the namespace of a key.
type directory struct {
	placement  Placement
	parts      []partition
	namespaces namespaces
}

// locate finds the partition and namespace of a check.
func (d *directory) locate(t *target, check *Check) {
	t.check = check
	if !isDefault(check.NS) {
		t.ns = check.NS
		t.spIdx = d.namespaces.index(check.NS)
	}
	t.sp = d.namespaces.all[t.spIdx]
	t.p = d.partitionOf(check)
	t.hash = d.namespaces.hash(t.ns, check.Key)
}

// partitionOf returns the partition of a check's key.
func (d *directory) partitionOf(check *Check) *partition {
	return &d.parts[d.placement.Of(check.NS, check.Key)]
}

// parkedError returns errRefusedKey if the store refuses one of the operation's keys.
func (d *directory) parkedError(op *Op) error {
	for i := range op.Checks {
		var t target
		if d.locate(&t, &op.Checks[i]); t.parked() {
			return errRefusedKey
		}
	}
	return nil
}
