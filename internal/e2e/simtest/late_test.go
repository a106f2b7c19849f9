package simtest

import (
	"strings"
	"time"
)

// lateness is how much later than a client thinks its time may be up for a node: the two find out
// by messages what time the other has.
const lateness = 100 * time.Millisecond

// watch looks, a little after the time for an operation is up of which nobody knows whether it was
// carried out, whether anybody has counted it: if nobody has by then, nobody may any more. It does
// so for a key that is used once, where Redis keeps what it is told. What is handed over the one
// who gives it shows until the one who takes it does, and what dies with a process is written off.
func (w *world) watch(key string, by time.Time) {
	if !strings.HasPrefix(key, "once") || w.plan.kind.loses() {
		return
	}
	w.watching.Go(func() {
		time.Sleep(time.Until(by) + lateness)
		if !w.known(key) {
			w.ledger.of(key, func(a *account) { a.over = true })
		}
	})
}

// known reports whether Redis or any process has counted a key.
func (w *world) known(key string) (known bool) {
	for _, p := range w.living() {
		p.counter.Unflushed(func(_, k []byte, _ int64) { known = known || string(k) == key })
	}
	return known || w.stored(key) != 0
}
