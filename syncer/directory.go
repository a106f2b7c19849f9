package syncer

// directory says where keys are: in which partition, and what their namespaces are like.
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

// partitionOf is where the key of a check lives.
func (d *directory) partitionOf(check *Check) *partition {
	return &d.parts[d.placement.Of(check.NS, check.Key)]
}

// parkedError tells the one who waited for the store that it refuses the key.
func (d *directory) parkedError(op *Op) error {
	for i := range op.Checks {
		var t target
		if d.locate(&t, &op.Checks[i]); t.parked() {
			return errRefusedKey
		}
	}
	return nil
}
