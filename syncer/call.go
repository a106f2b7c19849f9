package syncer

import (
	"errors"
	"slices"
)

// call is the scratch memory of one operation: its checks, and the partitions of their keys, which
// are locked together.
type call struct {
	op          *Op
	now, ts     int64
	targets     []target
	parts       []*partition
	reservation *reservation // if set, the operation is reserved instead of counted
	refused     bool         // the store refuses one of the keys that were counted
	touched     uint64
	admission   admission
	borrowed    bool // some of the targets are counted for another counter
}

// begin prepares the scratch memory for an operation.
func (k *call) begin(op *Op, now int64) {
	k.op, k.now = op, now
	k.targets, k.parts, k.refused, k.reservation = k.targets[:0], k.parts[:0], false, nil
}

// prepare locates and validates everything before anything is locked.
func (k *call) prepare(d *directory, op *Op, now int64) error {
	k.begin(op, now)
	ts, err := Validate(op, d.namespaces.ladder, now)
	if err != nil {
		return err
	}
	k.ts = ts
	k.locate(d)
	return nil
}

// locate finds the partitions of all checks, and how much earlier checks count of the same key.
func (k *call) locate(d *directory) {
	for i := range k.op.Checks {
		check := &k.op.Checks[i]
		k.targets = append(k.targets, target{})
		t := &k.targets[i]
		d.locate(t, check)
		for j := range i {
			if o := &k.targets[j]; t.same(o) {
				t.extra += o.check.N
			}
		}
		k.parts = append(k.parts, t.p)
	}
	k.order()
}

// same reports whether two targets have the same key.
func (t *target) same(o *target) bool {
	return o.p == t.p && o.hash == t.hash && string(o.ns) == string(t.ns) &&
		string(o.check.Key) == string(t.check.Key)
}

// order sorts the partitions into locking order and removes duplicates.
func (k *call) order() {
	if len(k.parts) > 1 {
		slices.SortFunc(k.parts, func(a, b *partition) int { return a.id - b.id })
		k.parts = slices.Compact(k.parts)
	}
}

// lock locks the partitions in ascending order, so that two operations never deadlock.
func (k *call) lock() {
	for _, p := range k.parts {
		p.mu.Lock()
	}
}

func (k *call) unlock() {
	if k.borrowed {
		k.giveBack()
	}
	for _, p := range k.parts {
		p.mu.Unlock()
	}
}

// decide evaluates an operation once its keys are known and there is room for what it counts.
func (k *call) decide(w *admission, res *Result) (counted bool, err error) {
	k.admission = *w
	for again := true; again; again = errors.Is(err, ErrBehind) && k.admission.wait() {
		res.Reset()
		if err = k.lockWarm(w.ctx, w.opt.LoadTimeout); err != nil {
			break
		}
		counted, err = k.evaluate(res)
		k.unlock()
	}
	err = k.admission.explain(err)
	k.admission.end()
	*w, k.admission = k.admission, admission{}
	return counted, err
}
