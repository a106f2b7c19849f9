package peer

import (
	"encoding/binary"
	"math"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
)

// The first byte of a task: the verb, whether refusals count, and whether a time is set. The second
// byte: the kind of operation and the acknowledgement.
const (
	verbMask  = 0x0f
	deniedBit = 0x10
	timeBit   = 0x20
	kindMask  = 0x0f
	ackShift  = 4
)

// Bounds of namespaces and keys, the same as everywhere.
const (
	maxNS  = 64
	maxKey = 256
)

// appendTask appends a task.
func appendTask(b []byte, t *rpc.Task) []byte {
	first := byte(t.Verb)
	if t.Op.CountDenied {
		first |= deniedBit
	}
	if t.Op.TS != 0 {
		first |= timeBit
	}
	b = append(b, first, byte(t.Op.Kind)|byte(t.Op.Ack)<<ackShift)
	if t.Op.TS != 0 {
		b = binary.AppendVarint(b, t.Op.TS)
	}
	if t.Verb == rpc.VerbReserve || t.Verb == rpc.VerbConfirm || t.Verb == rpc.VerbUndo {
		b = appendBytes(appendBytes(b, t.Reservation), t.Coordinator)
	}
	b = binary.AppendUvarint(b, uint64(len(t.Op.Checks)))
	for i := range t.Op.Checks {
		c := &t.Op.Checks[i]
		b = appendBytes(appendBytes(b, c.NS), c.Key)
		b = binary.AppendVarint(b, c.N)
		b = binary.AppendUvarint(b, uint64(len(c.Limits)))
		for j := range c.Limits {
			b = binary.AppendVarint(b, c.Limits[j].Window)
			b = binary.AppendVarint(b, c.Limits[j].Max)
		}
	}
	return b
}

// taskList is tasks that were parsed from a message, and their memory.
type taskList struct {
	tasks  []rpc.Task
	checks []node.Check
	limits []node.Limit
	starts []int // index of the first check of each task
	ends   []int
}

func (l *taskList) reset() {
	clear(l.tasks)
	l.tasks, l.checks, l.limits = l.tasks[:0], l.checks[:0], l.limits[:0]
	l.starts, l.ends = l.starts[:0], l.ends[:0]
}

// read parses one task. Its keys are views into the message. Call link after the last task.
func (l *taskList) read(r *reader) {
	first, second := r.byte(), r.byte()
	t := rpc.Task{Verb: rpc.Verb(first & verbMask)}
	t.Op.Kind, t.Op.Ack = node.Kind(second&kindMask), node.Ack(second>>ackShift)
	t.Op.CountDenied = first&deniedBit != 0
	if t.Verb > rpc.VerbDrop || t.Op.Kind > node.Acquire || t.Op.Ack > node.AckDisk {
		r.fail()
	}
	if first&timeBit != 0 {
		t.Op.TS = r.int()
	}
	if t.Verb == rpc.VerbReserve || t.Verb == rpc.VerbConfirm || t.Verb == rpc.VerbUndo {
		t.Reservation, t.Coordinator = r.string(), r.string()
	}
	l.starts = append(l.starts, len(l.checks))
	for range r.count() {
		c := node.Check{NS: r.bytes(), Key: r.bytes(), N: r.int()}
		if len(c.NS) > maxNS || len(c.Key) == 0 || len(c.Key) > maxKey || c.N > math.MaxInt32 ||
			c.N < -math.MaxInt32 {
			r.fail()
		}
		for range r.count() {
			l.limits = append(l.limits, node.Limit{Window: r.int(), Max: r.int()})
		}
		l.checks = append(l.checks, c)
		l.ends = append(l.ends, len(l.limits))
	}
	if !fits(&t, len(l.checks)-l.starts[len(l.starts)-1]) {
		r.fail()
	}
	l.tasks = append(l.tasks, t)
}

// fits reports whether a task has the number of checks that it needs.
func fits(t *rpc.Task, checks int) bool {
	switch {
	case t.Verb == rpc.VerbConfirm || t.Verb == rpc.VerbUndo:
		return checks == 0
	case t.Verb == rpc.VerbReserve || t.Verb == rpc.VerbDo && t.Op.Kind == node.Acquire:
		return checks > 0
	}
	return checks == 1
}

// link sets the checks of each task and the limits of each check, once the slices no longer grow.
func (l *taskList) link() {
	at := 0
	for i := range l.checks {
		l.checks[i].Limits = l.limits[at:l.ends[i]:l.ends[i]]
		at = l.ends[i]
	}
	for i := range l.tasks {
		end := len(l.checks)
		if i+1 < len(l.starts) {
			end = l.starts[i+1]
		}
		l.tasks[i].Op.Checks = l.checks[l.starts[i]:end:end]
	}
}
