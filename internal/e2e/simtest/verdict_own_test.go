package simtest

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
)

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
