package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rulebook"
)

// document is one version of the rules. Both rules have a limit that is never reached and that
// distinguishes the document from all others.
type document struct {
	number int64 // of its version, once it is stored
	rules  []ruled
}

// ruled is one rule of a document.
type ruled struct {
	name, state string
	ban         int64 // in milliseconds, or 0
	limits      []ruledLimit
	special     []ruledLimit // the limits of specialKey, if any
}

type ruledLimit struct {
	window string
	ms     int64
	most   int64
}

// The rules of all documents; the second is the default one.
const (
	strict  = "strict"
	relaxed = "relaxed"
)

// ruledKeys is how many keys rules judge. One of them has overrides now and then.
const (
	ruledKeys  = 4
	specialKey = "ruled1"
)

// drawDocument returns a new, unique document.
func drawDocument(rnd *rand.Rand, serial int64) *document {
	mark := ruledLimit{"24h", dayMS, 1_000_000 + serial}
	draw := func(name, window string, ms, most int64) ruled {
		r := ruled{name: name, state: "on", limits: []ruledLimit{
			{window, ms, 1 + rnd.Int64N(most)}, mark}}
		switch rnd.IntN(10) {
		case 0:
			r.state = "off"
		case 1, 2:
			r.state = "shadow"
		}
		if rnd.IntN(3) > 0 {
			r.ban = 1000 + rnd.Int64N(mostBan-1000)
		}
		if rnd.IntN(2) == 0 {
			r.special = []ruledLimit{mark, {"40s", 40_000, 1 + rnd.Int64N(30)}}
		}
		return r
	}
	return &document{rules: []ruled{draw(strict, "2500ms", 2500, 6),
		draw(relaxed, "1h", hourMS, 200)}}
}

// text returns the document as nodes read it.
func (d *document) text() string {
	var b strings.Builder
	b.WriteString("rules:\n")
	list := func(limits []ruledLimit) string {
		var items []string
		for _, l := range limits {
			items = append(items, fmt.Sprintf("%d/%s", l.most, l.window))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	for _, r := range d.rules {
		fmt.Fprintf(&b, "- {name: %s, state: %s, default: %v, limits: %s", r.name, r.state,
			r.name == relaxed, list(r.limits))
		if r.ban > 0 {
			fmt.Fprintf(&b, ", ban: %dms", r.ban)
		}
		if r.special != nil {
			fmt.Fprintf(&b, ", overrides: [{key: %s, limits: %s}]", specialKey, list(r.special))
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// rule returns a rule of the document.
func (d *document) rule(name string) *ruled {
	for i := range d.rules {
		if d.rules[i].name == name {
			return &d.rules[i]
		}
	}
	return nil
}

// bans reports whether the rule bans.
func (r *ruled) bans() bool { return r.ban > 0 && r.state == "on" }

// of returns the limits of the rule for a key.
func (r *ruled) of(key string) []ruledLimit {
	if key == specialKey && r.special != nil {
		return r.special
	}
	return r.limits
}

// editions are all versions of the rules that were ever stored. All processes share them, like the
// other data in Redis, but no fault loses any.
type editions struct {
	memory rulebook.Memory

	mu     sync.Mutex
	serial int64
	drawn  map[string]*document // by text
	known  map[int64]*document  // by number, once stored
	newest int64
	told   []announced
}

// announced is a version that a client learned to be in force.
type announced struct {
	number int64
	at     time.Time
}

// draw returns another document.
func (e *editions) draw(rnd *rand.Rand) *document {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.serial++
	d := drawDocument(rnd, e.serial)
	if e.drawn == nil {
		e.drawn, e.known = map[string]*document{}, map[int64]*document{}
	}
	e.drawn[d.text()] = d
	return d
}

// begin stores the first version.
func (e *editions) begin(rnd *rand.Rand) error {
	return e.append(context.Background(), twotier.RuleVersion{Number: 1, ID: "first",
		Text: []byte(e.draw(rnd).text())})
}

// append stores a version, unless that is not the next one.
func (e *editions) append(ctx context.Context, v twotier.RuleVersion) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.memory.Append(ctx, v)
	if d := e.drawn[string(v.Text)]; err == nil {
		d.number, e.known[v.Number], e.newest = v.Number, d, v.Number
	}
	return err
}

// version returns the document of a version, or nil if there is none.
func (e *editions) version(number int64) *document {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[number]
}

// numberOf returns the number of the version that has a document, or 0 if it was not stored.
func (e *editions) numberOf(d *document) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return d.number
}

// announce records that a client learned of a version.
func (e *editions) announce(number int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, announced{number, time.Now()})
}

// due returns the version that every node must have had by some time: it asks for the newest one
// twice a second.
func (e *editions) due(by time.Time) (number int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.told {
		if a.at.Before(by.Add(-time.Second)) {
			number = max(number, a.number)
		}
	}
	return number
}

// store gives one process access to the versions, except while it has lost Redis.
type store struct {
	p *proc
	e *editions
}

func (s store) reach(ctx context.Context) error {
	if s.p.store.Down() || s.p.toRedis(ctx) != nil {
		return fmt.Errorf("%w: no answer", twotier.ErrUnavailable)
	}
	return nil
}

// Newest implements rulebook.Store, as the other methods do.
func (s store) Newest(ctx context.Context) (number int64, id string, err error) {
	if err := s.reach(ctx); err != nil {
		return 0, "", err
	}
	number, id, err = s.e.memory.Newest(ctx)
	if back := s.reach(ctx); back != nil {
		return 0, "", back
	}
	return number, id, err
}

func (s store) Version(ctx context.Context, number int64) (v twotier.RuleVersion, err error) {
	if err := s.reach(ctx); err != nil {
		return v, err
	}
	return s.e.memory.Version(ctx, number)
}

func (s store) History(ctx context.Context) (list []twotier.RuleVersion, err error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	return s.e.memory.History(ctx)
}

func (s store) Append(ctx context.Context, v twotier.RuleVersion) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	if err := s.e.append(ctx, v); err != nil {
		return err
	}
	return s.reach(ctx)
}

func (s store) Restore(ctx context.Context, _ twotier.RuleVersion) error { return s.reach(ctx) }

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
