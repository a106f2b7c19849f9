package peer

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
)

// The first byte of a task: the verb, and flags for refusals that count, a time that is set, and a
// dry run. Instead, the whole byte may be likeLast: the task is an operation like the previous one
// in the same call, and only its keys follow.
const (
	verbMask  = 0x0f
	deniedBit = 0x10
	timeBit   = 0x20
	likeLast  = 0x40
	dryBit    = 0x80
)

// appendOp appends an operation. last is the previous operation in the same call, or nil.
func appendOp(b []byte, op, last *twotier.Op) []byte {
	if last != nil && sameExceptKeys(op, last) {
		return appendKeys(append(b, likeLast), op)
	}
	return appendChecks(appendTaskHead(b, rpc.VerbDo, op), op)
}

// appendTask appends a task.
func appendTask(b []byte, t *rpc.Task) []byte {
	b = appendTaskHead(b, t.Verb, &t.Op)
	return appendChecks(appendStep(b, t), &t.Op)
}

// appendStep appends the fields of a step of an acquire over several owners, without its operation.
func appendStep(b []byte, t *rpc.Task) []byte {
	if !t.Verb.IsStep() {
		return b
	}
	b = appendUint(appendBytes(b, t.Acquire.Coordinator), t.Acquire.Number)
	switch t.Verb {
	case rpc.VerbReserve:
		b = appendBytes(b, t.Decider)
	case rpc.VerbDecide:
		b = appendUint(b, t.Settled)
	}
	return b
}

func appendTaskHead(b []byte, verb rpc.Verb, op *twotier.Op) []byte {
	first := byte(verb)
	if op.CountDenied {
		first |= deniedBit
	}
	if op.TS != 0 {
		first |= timeBit
	}
	if op.DryRun {
		first |= dryBit
	}
	b = append(b, first, byte(op.Kind)|chargeBit*boolByte(op.Charge)|byte(op.Ack)<<ackShift)
	if op.TS != 0 {
		b = appendInt(b, op.TS)
	}
	return b
}

// taskList holds the tasks parsed from a message, and their memory.
type taskList struct {
	ops      []twotier.Op // of all tasks
	firsts   []int        // index of the first check of each operation
	checks   []twotier.Check
	limitsOf []indexRange // the limits of each check
	limits   []twotier.Limit
	asked    int // number of limits; shared ones count once for each check

	// tasks holds the tasks that do more than run their operation, and places their positions among
	// all tasks.
	tasks  []rpc.Task
	places []int
}

func (l *taskList) reset() {
	clear(l.tasks)
	l.ops, l.firsts, l.checks = l.ops[:0], l.firsts[:0], l.checks[:0]
	l.limitsOf, l.limits, l.asked = l.limitsOf[:0], l.limits[:0], 0
	l.tasks, l.places = l.tasks[:0], l.places[:0]
}

// read parses one task. isFirst marks the first task of a call. Call link after the last task of
// the message.
func (l *taskList) read(r *reader, isFirst bool) {
	first := r.byte()
	if first != likeLast {
		l.readFullTask(r, first)
		return
	}
	if last := len(l.ops) - 1; isFirst || len(l.places) > 0 && l.places[len(l.places)-1] == last {
		r.fail()
		return
	}
	start := len(l.checks)
	l.readKeysOnly(r)
	l.ops, l.firsts = append(l.ops, l.ops[len(l.ops)-1]), append(l.firsts, start)
}

// readFullTask parses a task that does not refer to the previous one.
func (l *taskList) readFullTask(r *reader, first byte) {
	second := r.byte()
	t := rpc.Task{Verb: rpc.Verb(first & verbMask)}
	t.Op.Kind, t.Op.Ack = twotier.Kind(second&kindMask), twotier.Ack(second>>ackShift)
	t.Op.Charge = second&chargeBit != 0
	t.Op.CountDenied, t.Op.DryRun = first&deniedBit != 0, first&dryBit != 0
	if t.Verb > rpc.VerbCoordinate || t.Op.Kind > twotier.Acquire || t.Op.Ack > twotier.AckDisk {
		r.fail()
	}
	if first&timeBit != 0 {
		t.Op.TS = r.int()
	}
	l.readStep(r, &t)
	start := len(l.checks)
	l.readChecks(r, t.Op.Kind)
	if !isValidCheckCount(&t, len(l.checks)-start) {
		r.fail()
	}
	if t.Verb != rpc.VerbDo {
		l.tasks, l.places = append(l.tasks, t), append(l.places, len(l.ops))
	}
	l.ops, l.firsts = append(l.ops, t.Op), append(l.firsts, start)
}

// readStep is the inverse of appendStep. Most tasks have the same coordinator as the previous one.
func (l *taskList) readStep(r *reader, t *rpc.Task) {
	if !t.Verb.IsStep() {
		return
	}
	name := r.bytes()
	if n := len(l.tasks); n > 0 && l.tasks[n-1].Acquire.Coordinator == string(name) {
		t.Acquire.Coordinator = l.tasks[n-1].Acquire.Coordinator
	} else {
		t.Acquire.Coordinator = string(name)
	}
	t.Acquire.Number = r.uint()
	switch t.Verb {
	case rpc.VerbReserve:
		t.Decider = r.string()
	case rpc.VerbDecide:
		t.Settled = r.uint()
	}
}

// isValidCheckCount reports whether a task has a valid number of checks.
func isValidCheckCount(t *rpc.Task, checks int) bool {
	switch {
	case t.Verb == rpc.VerbConfirm || t.Verb == rpc.VerbUndo:
		return checks == 0
	case t.Verb.IsStep() || t.Verb == rpc.VerbCoordinate,
		t.Verb == rpc.VerbDo && t.Op.Kind == twotier.Acquire:
		return checks > 0
	}
	return checks == 1
}

// linkChecks sets the checks of each task and the limits of each check, once the slices no longer
// grow.
func (l *taskList) linkChecks() {
	for i := range l.checks {
		at := l.limitsOf[i]
		l.checks[i].Limits = l.limits[at.from:at.to:at.to]
	}
	end := len(l.checks)
	for i := len(l.ops) - 1; i >= 0; i-- {
		l.ops[i].Checks = l.checks[l.firsts[i]:end:end]
		end = l.firsts[i]
	}
	for i := range l.tasks {
		l.tasks[i].Op = l.ops[l.places[i]]
	}
}
