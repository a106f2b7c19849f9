package simtest

import (
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier"
)

// lateness is how much later a deadline may pass for a node than for the client: nodes learn each
// other's time from messages.
const lateness = 100 * time.Millisecond

// watch checks whether a key was counted shortly after the deadline of an operation with an unknown
// outcome. If no process has counted it by then, none may count it later. It only checks keys that
// are used once, in schedules in which Redis does not lose data. During a handover the giving node
// shows the counts until the taking one does, and counts that die with a process are written off.
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
		p.counter.EachUnflushed(func(_, k []byte, _ int64) { known = known || string(k) == key })
	}
	return known || w.stored(key) != 0
}

// counted records which keys of a batch that are used once had been counted at a moment.
type counted struct {
	mu   sync.Mutex
	keys map[string]bool // nil before that moment
}

// countedBy records which keys of a hasty client's batch have been counted at that moment, if Redis
// loses no data.
func (c *client) countedBy(at time.Time, ops []twotier.Op) *counted {
	l := new(counted)
	if !c.hasty || len(ops) < 2 || c.w.plan.kind.loses() {
		return l
	}
	c.w.watching.Go(func() {
		time.Sleep(time.Until(at))
		keys := map[string]bool{}
		for i := range ops {
			if key := string(ops[i].Checks[0].Key); strings.HasPrefix(key, "once") {
				keys[key] = c.w.stored(key) != 0
			}
		}
		for _, p := range c.w.living() {
			p.counter.EachUnflushed(func(_, k []byte, _ int64) {
				if _, asked := keys[string(k)]; asked {
					keys[string(k)] = true
				}
			})
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.keys = keys
	})
	return l
}

// lacks reports whether a key had not been counted yet.
func (l *counted) lacks(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	early, looked := l.keys[key]
	return looked && !early
}
