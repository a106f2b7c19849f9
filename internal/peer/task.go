package peer

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/leaparray"
)

// The head of a task, 16 bits: the verb, the operation's kind and acknowledgement, whether it has a
// time, and the bits of its booleans. Instead, its first byte may be likeLast: the task is an
// operation like the previous one in the same call, and only its keys follow.
const (
	verbMask  = 0x0f
	timeBit   = 0x20
	likeLast  = 0x40
	kindShift = 8
	kindMask  = 0x03
	ackShift  = 12
	ackMask   = 0x07
)

// headOf returns the head of an operation, without a verb.
func headOf(op *twotier.Op) uint16 {
	head := uint16(op.Kind)<<kindShift | uint16(op.Ack)<<ackShift
	if op.TS != 0 {
		head |= timeBit
	}
	for f := range fields.Booleans.All() {
		if *f.Value(op) {
			head |= f.Bit()
		}
	}
	return head
}

// readHead sets what the head of an operation holds, and returns the verb. It refuses bits that
// this node does not know.
func readHead(r *reader, head uint16, op *twotier.Op) rpc.Verb {
	op.Kind = twotier.Kind(head >> kindShift & kindMask)
	op.Ack = twotier.Ack(head >> ackShift & ackMask)
	for f := range fields.Booleans.All() {
		*f.Value(op) = head&f.Bit() != 0
	}
	verb := head & verbMask
	if head&timeBit != 0 {
		op.TS = r.int()
	}
	if head != headOf(op)|verb || rpc.Verb(verb) > rpc.VerbCoordinate ||
		op.Kind > twotier.Acquire || op.Ack > twotier.AckDisk {
		r.fail()
	}
	return rpc.Verb(verb)
}

// appendOp appends an operation. last is the previous operation in the same call, or nil.
func appendOp(b []byte, op, last *twotier.Op) []byte {
	if last != nil && sameExceptKeys(op, last) {
		return appendKeys(append(b, likeLast), op)
	}
	return appendChecks(appendTaskHead(b, rpc.VerbDo, op), op)
}

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
	b = binary.LittleEndian.AppendUint16(b, headOf(op)|uint16(verb))
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
	var t rpc.Task
	t.Verb = readHead(r, uint16(first)|uint16(r.byte())<<8, &t.Op)
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

// Bounds of namespaces and keys: those of companions are longer than the clients', see
// twotier.Companion.
const (
	maxNS  = len("@settled25h") + 1 + 64
	maxKey = 64 + 1 + 256
)

// limitBytes is the minimum size of a limit and its result where they are spelled out, and
// maxLimits is the number that fits into the body of a message that spells out all of them.
// Operations like the previous one could demand many more: the reader of a message bounds them by
// maxLimits, and the writer counts limitBytes for each.
const (
	limitBytes = 5
	maxLimits  = 2 * (maxBody + maxMessage) / limitBytes
)

// sameExceptKeys reports whether two operations differ in their keys only.
func sameExceptKeys(a, b *twotier.Op) bool {
	if headOf(a) != headOf(b) || a.TS != b.TS || len(a.Checks) != len(b.Checks) {
		return false
	}
	for i := range a.Checks {
		x, y := &a.Checks[i], &b.Checks[i]
		if x.Kind != y.Kind || x.N != y.N || x.Ban != y.Ban || x.Until != y.Until ||
			!bytes.Equal(x.NS, y.NS) || !slices.Equal(x.Values, y.Values) ||
			!slices.Equal(x.Limits, y.Limits) {
			return false
		}
	}
	return true
}

// appendKeys appends the keys of an operation like the previous one.
func appendKeys(b []byte, op *twotier.Op) []byte {
	for i := range op.Checks {
		b = appendBytes(b, op.Checks[i].Key)
	}
	return b
}

// checkKindBits is how many bits of a check's N hold its kind.
const checkKindBits = 2

func appendChecks(b []byte, op *twotier.Op) []byte {
	b = appendUint(b, uint64(len(op.Checks)))
	for i := range op.Checks {
		c := &op.Checks[i]
		b = appendBytes(appendBytes(b, c.NS), c.Key)
		b = appendInt(b, c.N<<checkKindBits|int64(c.Kind))
		switch c.Kind {
		case twotier.BanCheck:
			b = appendUint(appendUint(b, uint64(c.Ban.From)), uint64(c.Ban.To))
		case twotier.LeaseCheck:
			b = appendInt(b, c.Until)
		case twotier.ValuesCheck:
			for _, hash := range c.Values { // c.N of them
				b = binary.LittleEndian.AppendUint64(b, hash)
			}
		}
		b = appendUint(b, uint64(len(c.Limits)))
		for j := range c.Limits {
			b = appendLimit(b, &c.Limits[j])
		}
	}
	return b
}

// appendLimit appends a limit. In place of a window, a period has 0 and its short form.
func appendLimit(b []byte, l *twotier.Limit) []byte {
	if l.Period == nil {
		return appendInt(appendInt(b, l.Window), l.Max)
	}
	return appendInt(appendBytes(appendInt(b, 0), l.Period.String()), l.Max)
}

// readLimit reads a limit. A period that this node does not have, because its time zones are older,
// leaves the limit empty: its operation is then refused, see twotier.Validate, and the others of
// the message are not.
func readLimit(r *reader) twotier.Limit {
	l := twotier.Limit{Window: r.int()}
	if l.Window == 0 {
		l.Period, _ = twotier.ParsePeriod(r.string())
	}
	l.Max = r.int()
	return l
}

// indexRange is a part of a list.
type indexRange struct{ from, to int }

// readChecks reads the checks of an operation. Their keys are views into the message.
func (l *taskList) readChecks(r *reader, kind twotier.Kind) {
	for range r.itemCount() {
		c := twotier.Check{NS: r.bytes(), Key: r.bytes()}
		packed := r.int()
		c.Kind, c.N = twotier.CheckKind(packed&(1<<checkKindBits-1)), packed>>checkKindBits
		if kind != twotier.Acquire && (c.IsBan() || c.IsLease()) {
			r.fail()
		}
		if len(c.NS) > maxNS || !validKey(c.Key) || c.N > math.MaxInt32 || c.N < -math.MaxInt32 {
			r.fail()
		}
		switch c.Kind {
		case twotier.BanCheck:
			c.Ban = twotier.Ban{From: r.uint16(), To: r.uint16()}
		case twotier.LeaseCheck:
			c.Until = r.int()
		case twotier.ValuesCheck:
			c.Values = r.values(c.N)
		}
		from := len(l.limits)
		for range r.itemCount() {
			l.limits = append(l.limits, readLimit(r))
		}
		l.addCheck(r, &c, indexRange{from, len(l.limits)})
	}
}

// values reads the hashes of n values, which are in order.
func (r *reader) values(n int64) []uint64 {
	if n < 0 || n > int64(len(r.b)/8) {
		r.fail()
		return nil
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = binary.LittleEndian.Uint64(r.b)
		r.b = r.b[8:]
		if leaparray.CleanHash(list[i]) != list[i] || i > 0 && list[i] <= list[i-1] {
			r.fail()
			return nil
		}
	}
	return list
}

// readKeysOnly reads the keys of an operation like the previous one, and adds its checks.
func (l *taskList) readKeysOnly(r *reader) {
	from, to := l.firsts[len(l.firsts)-1], len(l.checks)
	for i := from; i < to; i++ {
		c := l.checks[i]
		if c.Key = r.bytes(); !validKey(c.Key) {
			r.fail()
		}
		l.addCheck(r, &c, l.limitsOf[i])
	}
}

func validKey(key []byte) bool { return len(key) > 0 && len(key) <= maxKey }

// addCheck adds a check with the limits in a part of the list.
func (l *taskList) addCheck(r *reader, c *twotier.Check, limits indexRange) {
	if l.asked += limits.to - limits.from; l.asked > maxLimits {
		r.fail()
	}
	l.checks, l.limitsOf = append(l.checks, *c), append(l.limitsOf, limits)
}
