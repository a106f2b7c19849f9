package simtest

import (
	"strings"
	"time"
)

// lateness is how much later than for the client the time may be up for a node: they learn each
// other's time from messages.
const lateness = 100 * time.Millisecond

// watch checks whether anybody has counted a key shortly after the deadline of an operation with an
// unknown outcome. If nobody has by then, nobody may count it later. It does so only for a key that
// is used once, and if Redis does not lose data. During a handover the giving node shows the counts
// until the taking one does, and counts that die with a process are written off.
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
