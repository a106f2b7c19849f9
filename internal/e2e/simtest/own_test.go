package simtest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
)

// TestAResetKeepsWhatMayComeLater records doubt about one count whose deadline is before a reset,
// and about one whose deadline is after it: only the second may remain after the reset.
func TestAResetKeepsWhatMayComeLater(t *testing.T) {
	l, asked := &ledger{keys: map[string]*account{}}, time.Now()
	l.acknowledge("k", 8, true)
	l.doubt("k", 1, asked.Add(-time.Millisecond))
	l.doubt("k", 2, asked.Add(time.Millisecond))
	l.reset("k", asked, 0, false)
	if a := l.copy("k"); a.least() != 0 || a.most() != 2 {
		t.Errorf("%d to %d may be left, want 0 to 2", a.least(), a.most())
	}
	l.reset("k", asked.Add(time.Second), 0, false)
	if a := l.copy("k"); a.most() != 0 {
		t.Errorf("up to %d may be left after another reset, want nothing", a.most())
	}
}

// departure is a world in which n3, which owns a key, leaves from second 2 to 4. n2 owns the key
// from then on, but n3 stays in the table of n1.
type departure struct {
	w     *world
	key   string
	procs [3]*proc
}

func newDeparture(t *testing.T) *departure {
	d := &departure{w: &world{t: t,
		plan: plan{partitions: 31, nodes: 3, interval: 100 * time.Millisecond}}}
	for i := range d.procs {
		r, err := ring.New(ring.Options{ID: fmt.Sprint("n", i+1), Name: fmt.Sprint("n", i+1),
			Agreement: ring.Agreement{Partitions: 31}})
		must.Succeed(t, err)
		d.procs[i] = &proc{w: d.w, id: r.Name(), ip: ip(i + 1), ring: r}
		d.w.sight.add(d.procs[i])
	}
	all, two := d.table(t, 1, 2, 3), d.table(t, 1, 2)
	owner := func(t *ring.Table) string { return t.Member(t.Owner(d.w.partition(d.key))).ID }
	for i := 0; d.key == "" || owner(all) != "n3" || owner(two) != "n2"; i++ {
		d.key = fmt.Sprint("k", i)
	}
	for i, p := range d.procs {
		o := d.w.sight.procs[p.ring.Name()]
		o.born = second(0)
		if o.views = []view{{second(0), all}}; i == 1 {
			o.views = append(o.views, view{second(2), two})
		}
	}
	n3 := d.procs[2]
	n3.left.Store(second(2).UnixNano())
	n3.ended.Store(second(4).UnixNano())
	n3.clean.Store(true)
	return d
}

// table returns the table of some nodes.
func (d *departure) table(t *testing.T, nodes ...int) *ring.Table {
	var list []ring.Member
	for _, i := range nodes {
		list = append(list, ring.Member{ID: fmt.Sprint("n", i), Name: fmt.Sprint("n", i)})
	}
	tab, err := ring.NewTable(list, "", 31, 0)
	must.Succeed(t, err)
	return tab
}

// second is a time of a departure.
func second(s float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second)))
}

// away makes a node unreachable for a while.
func (d *departure) away(node int, from, to float64) {
	d.w.sight.away = append(d.w.sight.away,
		absence{ip: ip(node), span: span{second(from), second(to)}, paused: true})
}

// TestWhoMayStandInForANodeThatLeft judges a stand-in for a node that left, and its admission of a
// limit that the next owner has used up. Both are right only for a node that missed the leave, and
// only until it had the time to notice.
func TestWhoMayStandInForANodeThatLeft(t *testing.T) {
	for name, c := range map[string]struct {
		by    int     // the node that stands in
		at    float64 // when
		set   func(d *departure)
		right bool
	}{
		"it stood still meanwhile":  {1, 17, func(d *departure) { d.away(1, 1, 10) }, true},
		"it stood still at the end": {1, 17, func(d *departure) { d.away(1, 3.9, 10) }, true},
		"it stood still twice": {1, 27, func(d *departure) {
			d.away(1, 1, 3)
			d.away(1, 11, 20)
		}, true},
		"the other could not be reached": {1, 10, func(d *departure) { d.away(3, 1, 3) }, true},
		"the other took it for dead": {1, 10, func(d *departure) {
			o := d.w.sight.procs["n3"]
			o.views = append(o.views, view{second(1), d.table(t, 2, 3)})
		}, true},
		"it had the time to notice":  {1, 26, func(d *departure) { d.away(1, 1, 10) }, false},
		"it stood still before":      {1, 10, func(d *departure) { d.away(1, 0.5, 1.5) }, false},
		"it stood still later":       {1, 27, func(d *departure) { d.away(1, 5, 20) }, false},
		"it could always be reached": {1, 5, func(*departure) {}, false},
		"another one stood still":    {2, 17, func(d *departure) { d.away(1, 1, 10) }, false},
		"the other is there": {1, 17, func(d *departure) {
			d.away(1, 1, 10)
			d.procs[2].ended.Store(0)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeparture(t)
			c.set(d)
			by, at := d.procs[c.by-1], second(c.at)
			d.w.sight.stands = []standIn{{by: by, keys: []string{d.key}, asked: at, told: at}}
			if o := d.w.wrongStandIn(); (o == nil) != c.right {
				t.Errorf("the stand-in is judged right: %v, want %v", o == nil, c.right)
			}
			a := &account{verdicts: []verdict{
				{asked: at.Add(-time.Second), told: at.Add(-time.Second), n: 5, by: "n2",
					ip: ip(2), source: twotier.SourceMemory},
				{asked: at, told: at, n: 1, by: by.id, ip: by.ip, source: twotier.SourceFallback},
			}}
			v := d.w.excess(d.key, a, twotier.Limit{Window: dayMS, Max: 5})
			if (v == nil) != c.right {
				t.Errorf("the admission is judged right: %v, want %v", v == nil, c.right)
			}
		})
	}
}

// TestALeaveIsMissed makes a node leave while another one stands still, for longer than it takes to
// be declared dead. The latter stands in for the departed node until it notices, but no longer than
// the judge allows.
func TestALeaveIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWith(t, func(p *plan) { p.nodes = 4 })
		defer w.shutDown()
		a, c := w.alive()[0], w.alive()[2]
		key := w.keysOf(c, "left", 1)[0]
		left := make(chan error, 1)
		go func() { left <- c.leave() }()
		a.sleep(12 * time.Second)
		must.Succeed(t, <-left)
		began, last := time.Now(), time.Duration(0)
		for time.Since(began) < 2*noticing {
			asked := time.Now()
			res, err := a.do(adding(key), time.Second)
			if err == nil && res.Source == twotier.SourceFallback {
				w.sight.standIn(a, adding(key), asked, true)
				last = time.Since(began)
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("the last stand-in comes %v after the standstill", last)
		w.checkStandIns()
	})
}

// TestAVerdictIsJudgedByTheMillisecond has three acquires, and a fourth about a window after the
// first. Admitting it is right from the moment at which the window may be over by the clock of a
// node.
func TestAVerdictIsJudgedByTheMillisecond(t *testing.T) {
	limit := twotier.Limit{Window: 2500, Max: 3}
	for _, c := range []struct {
		first, fourth time.Duration
		right         bool
	}{
		{679_312 * time.Microsecond, 3_179_028 * time.Microsecond, true}, // 2500 by one clock
		{679_900 * time.Microsecond, 3_177_100 * time.Microsecond, true}, // one behind, one ahead
		{679_000 * time.Microsecond, 3_175_999 * time.Microsecond, false},
		{679_000 * time.Microsecond, 2_000 * time.Millisecond, false},
	} {
		began, a := time.Now(), &account{}
		for _, at := range []time.Duration{c.first, 690 * time.Millisecond, 906 * time.Millisecond,
			c.fourth} {
			a.verdicts = append(a.verdicts, verdict{asked: began.Add(at), told: began.Add(at), n: 1,
				source: twotier.SourceMemory})
		}
		if n := a.mostWithin(limit.Window); n <= limit.Max != c.right {
			t.Errorf("%v after the first: %d in a window, want right: %v", c.fourth-c.first, n,
				c.right)
		}
		if v := a.blind(limit, 0, imprecision, nil); (v == nil) != c.right {
			t.Errorf("%v after the first: blind is %+v, want right: %v", c.fourth-c.first, v,
				c.right)
		}
	}
}

// TestAWindowEndsWithinAMillisecond asks an owner without pause whether a window has ended. By the
// clock of clients it does so up to a millisecond early, because the times of both events are whole
// milliseconds, never earlier, and never late.
func TestAWindowEndsWithinAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 100 * time.Microsecond
		w := calmWith(t, func(p *plan) { p.exact = true })
		defer w.shutDown()
		p, early := w.alive()[0], 0
		for i, key := range w.keysOf(p, "k", 20) {
			limit := twotier.Limit{Window: 2500, Max: 1}
			op := &twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
				{Key: []byte(key), N: 1, Limits: []twotier.Limit{limit}}}}
			window, a := time.Duration(limit.Window)*time.Millisecond, &account{}
			time.Sleep(time.Duration(i) * 137 * time.Microsecond)
			for begun := time.Now(); len(a.verdicts) < 2; time.Sleep(step) {
				asked := time.Now()
				res, err := p.do(op, time.Second)
				must.Succeed(t, err)
				if res.Allowed {
					a.verdicts = append(a.verdicts, verdict{asked: asked, told: time.Now(), n: 1,
						source: res.Source})
					time.Sleep(window - 4*time.Millisecond)
				}
				if time.Since(begun) > 2*window {
					t.Fatalf("%s: %d admitted in two windows", key, len(a.verdicts))
				}
			}
			ago := a.verdicts[1].told.Sub(a.verdicts[0].asked)
			if ago <= window-time.Millisecond || ago > window+step {
				t.Errorf("%s: a window of %v ends after %v", key, window, ago)
			}
			n, blind := a.mostWithin(limit.Window), a.blind(limit, 0, imprecision, nil)
			if n > 1 || blind != nil {
				t.Errorf("%s: a window that ends after %v is judged to hold %d", key, ago, n)
			}
			if ago < window {
				early++
			}
		}
		if early == 0 {
			t.Error("no window was shorter for clients than for nodes")
		}
	})
}
