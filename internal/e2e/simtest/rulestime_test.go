package simtest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestRulesWithinASecond changes the rules at one node after the other. Within a second of virtual
// time, every node that can reach Redis has the new version in force, and a node that could not has
// it within a second of reaching Redis again.
func TestRulesWithinASecond(t *testing.T) {
	for name, away := range map[string]func(p *proc) (back func()){
		"all there": nil,
		"one without Redis": func(p *proc) func() {
			p.store.SetDown(true)
			return func() { p.store.SetDown(false) }
		},
		"one suspended": func(p *proc) func() {
			p.asleep.Store(true)
			p.w.net.Freeze(p.ip)
			return func() { p.w.net.Thaw(p.ip); p.asleep.Store(false) }
		},
		"one gone": func(p *proc) func() {
			i := p.w.hostOf(p)
			p.w.leaves(p)
			return func() { p.w.joinAt(i) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calmWith(t, func(p *plan) { p.rules = true })
				defer w.shutDown()
				a := w.newAsker(0)
				defer a.host.Stop()
				for i := range 12 {
					a.changeRules(i, away)
				}
			})
		})
	}
}

// changeRules makes the next version, while one process is away if away is set.
func (a *asker) changeRules(i int, away func(p *proc) (back func())) {
	w := a.w
	w.rest(1000)
	list := w.alive()
	p, number := list[i%len(list)], int64(i+1)
	others := slices.DeleteFunc(w.alive(), func(o *proc) bool { return o == p })
	back := func() {}
	if away != nil {
		back = away(p)
		w.rest(5000)
	}
	a.put(others[i%len(others)])
	w.haveRules(others, number)
	if away != nil {
		w.rest(5000)
		if has := p.book.Rules().Version(); has >= number {
			w.t.Errorf("node %s has version %d, and was away", p.id, has)
		}
		back()
	}
	w.haveRules(w.alive(), number)
}

// hostOf returns the number of the host that a process runs on.
func (w *world) hostOf(p *proc) int {
	for i := range hosts {
		if w.at(i) == p {
			return i
		}
	}
	w.t.Fatalf("node %s is nowhere", p.id)
	return 0
}

// haveRules checks that within a second processes judge by the given version, which is the newest.
func (w *world) haveRules(list []*proc, number int64) {
	w.t.Helper()
	began := time.Now()
	for _, p := range list {
		for p.book.Rules().Version() < number && time.Since(began) < 10*time.Second {
			time.Sleep(10 * time.Millisecond)
		}
		took, has := time.Since(began), p.book.Rules().Version()
		if took > time.Second || has != number {
			w.t.Errorf("node %s has version %d after %v, want %d within a second", p.id, has, took,
				number)
		}
	}
}
