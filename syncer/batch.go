package syncer

import (
	"errors"

	"twotier.dev/twotier/internal/arena"
)

// atOnce is how many adds of a batch are carried out, and how many keys of others looked at, under
// their locks at a time: enough for their reads of memory to overlap, and so few of the partitions
// that nobody else waits for long. Of 4, 8, 12, 16, 32 and 64, BenchmarkAddsAmong was the fastest
// with 8.
const atOnce = 8

// plainAdds is how many operations from the first on are adds that compare with nothing.
func plainAdds(ops []Op) int {
	for i := range ops {
		if !ops[i].unconditional() {
			return i
		}
	}
	return len(ops)
}

// unconditional reports whether an operation needs to know nothing of its key's past: it counts and
// compares with nothing. Taking back does, as it takes back no more than there is.
func (op *Op) unconditional() bool {
	return op.Kind == Add && len(op.Checks) == 1 && len(op.Checks[0].Limits) == 0 &&
		op.Checks[0].N >= 0
}

// addAll carries out adds that compare with nothing, in order, and sets Err in each result. For
// those that are to be in the store it calls stored, with the partition locked. Those that there is
// no room for are carried out after the others, as they get some.
func (c *Counter) addAll(w *admission, ops []Op, res []Result,
	stored func(i int, p *partition, ticket uint64)) {
	c.addSome(w, ops, res, stored)
	for i := range ops {
		// It is tried first: where there is no room is known of the last one only.
		for again := errors.Is(res[i].Err, ErrBehind); again; again = errors.Is(res[i].Err,
			ErrBehind) && w.wait() {
			c.addSome(w, ops[i:i+1], res[i:i+1], func(_ int, p *partition, ticket uint64) {
				stored(i, p, ticket)
			})
		}
		w.end()
	}
}

// addSome is addAll without waiting.
func (c *Counter) addSome(w *admission, ops []Op, res []Result,
	stored func(i int, p *partition, ticket uint64)) {
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	for from := 0; from < len(ops); from += atOnce {
		to := min(len(ops), from+atOnce)
		k.begin(nil, c.opt.Now())
		for i := from; i < to; i++ {
			k.targets = append(k.targets, target{})
			t := &k.targets[i-from]
			c.locate(t, &ops[i].Checks[0])
			k.parts = append(k.parts, t.p)
		}
		k.order()
		k.lock()
		k.touch(false)
		for i := from; i < to; i++ {
			t := &k.targets[i-from]
			res[i].Reset()
			ticket := uint64(0)
			ts, err := moment(&ops[i], t.sp.ladder, k.now)
			if err == nil {
				ticket, err = c.addHere(t, &ops[i], &res[i], ts, k.now, w)
			}
			switch res[i].Err = err; {
			case err != nil || !c.durability.waits(&ops[i]):
			case ticket == noTicket:
				res[i].Err = errRefusedKey
			default:
				stored(i, t.p, ticket)
			}
		}
		k.unlock()
	}
}

// touch reads the slot and the entry of each target, and what the store holds if that will be
// needed, so that these reads don't wait for each other. See [partition.touch].
func (k *call) touch(synced bool) {
	sum := uint64(0)
	for i := range k.targets {
		t := &k.targets[i]
		sum += t.p.keys.table.Touch(t.hash)
	}
	for i := range k.targets {
		t := &k.targets[i]
		if t.ref = t.p.keys.table.Find(t.hash, func(arena.Ref) bool { return true }); t.ref != 0 {
			sum += t.p.keys.arena.Tail(t.ref)[2]
		}
	}
	for i := range k.targets {
		if t := &k.targets[i]; t.ref != 0 {
			e := entry(t.p.keys.arena.Tail(t.ref))
			sum += e[e.inlineAt()]
			if s := e.synced(); synced && s != 0 {
				sum += t.p.keys.arena.Tail(s)[0]
			}
		}
	}
	k.touched = sum
}
