package peer

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/trace"
)

// work is a caller's work for another node: tasks, or some operations of a batch. It is encoded
// from the caller's memory, and its results are decoded into that memory.
type work struct {
	tasks []rpc.Task
	ops   []twotier.Op
	at    []int            // positions in ops and res; nil if there are tasks
	res   []twotier.Result // parallel to tasks or ops
	trace *trace.Context   // of the work; nil if it is part of no trace
}

func (w *work) len() int {
	if w.at != nil {
		return len(w.at)
	}
	return len(w.tasks)
}

// op returns the i-th operation.
func (w *work) op(i int) *twotier.Op {
	if w.at != nil {
		return &w.ops[w.at[i]]
	}
	return &w.tasks[i].Op
}

// result returns the i-th result.
func (w *work) result(i int) *twotier.Result {
	if w.at != nil {
		return &w.res[w.at[i]]
	}
	return &w.res[i]
}

// fail sets the error of each result.
func (w *work) fail(err error) {
	for i := range w.len() {
		res := w.result(i)
		res.Reset()
		res.Err = err
	}
}

// encode writes the work into a call.
func (w *work) encode(k *call) {
	k.tasks = w.len()
	b := appendUint(k.body[:0], uint64(k.tasks))
	limits := 0
	var last *twotier.Op
	for i := range k.tasks {
		op := w.op(i)
		if w.at != nil {
			b = appendOp(b, op, last)
			last = op
		} else {
			b = appendTask(b, &w.tasks[i])
		}
		for j := range op.Checks {
			limits += len(op.Checks[j].Limits)
		}
	}
	k.body, k.size = b, max(len(b), limits*limitBytes)
}

// class returns the class of the work, which is the class of its slowest task.
func (w *work) class() class {
	of := quick
	for i := range w.tasks {
		switch w.tasks[i].Verb {
		case rpc.VerbReset, rpc.VerbDrop:
			return resets // never sent together with others
		case rpc.VerbCoordinate:
			of = nodeBound
		}
	}
	for i := 0; of == quick && i < w.len(); i++ {
		// Taking back may wait until other nodes have stored their counts.
		if op := w.op(i); op.Ack >= twotier.AckStore || op.TakesBack() {
			of = storeBound
		}
	}
	return of
}

// decode reads the results from a reply.
func (w *work) decode(reply []byte) error {
	r, t := reader{b: reply}, timeDeltas{}
	for i := range w.len() {
		readResult(&r, w.op(i), w.result(i), &t)
	}
	return r.checkEnd()
}
