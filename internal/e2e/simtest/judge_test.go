package simtest

import (
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
)

// ruledAnswer is the answer to a ruledOp.
type ruledAnswer struct {
	Allowed bool
	Checks  []struct {
		Key     string
		Allowed bool
		Limits  []answeredLimit
	}
	Bans []struct {
		Rule, Key string
		Until     int64
		Started   bool
	}
	Version  int64 `json:"rules_version"`
	Source   string
	Degraded bool
	Error    *struct {
		Status  int
		Outcome string
	}
}

type answeredLimit struct {
	Rule, Window    string
	Max, Count      int64
	Refused, Shadow bool
}

// question records when a process was asked, and when it answered.
type question struct {
	p        *proc
	at, told time.Time
	least    int64 // the oldest version that it may judge by
}

// decision is an acquire that was counted, or not stopped by a ban.
type decision struct {
	verdict
	allowed, counted bool
	rules            []*ruled
}

// hasVersion records that a process has a version in force.
func (p *proc) hasVersion(number int64) {
	for {
		had := p.version.Load()
		if number <= had || p.version.CompareAndSwap(had, number) {
			return
		}
	}
}

// leastVersion returns the oldest version by which a process may judge a request now: none older
// than it has judged by, and if it could always reach Redis, none older than the newest version
// announced to any client more than a second ago.
func (w *world) leastVersion(p *proc) int64 {
	least, now := p.version.Load(), time.Now()
	recent := span{now.Add(-time.Second), now}
	if w.plan.kind.is(graceful, together, moves) && w.plan.takes == 0 && !p.store.Down() &&
		!slices.ContainsFunc(w.hindered(), recent.overlaps) {
		least = max(least, w.rules.due(now))
	}
	return least
}

// inDoubt records an acquire of unknown outcome.
func (w *world) inDoubt(asked *question, op *ruledOp) {
	for i := range op.Checks {
		c := &op.Checks[i]
		w.journal.note("client: %s %+d by %v at %s: no answer", c.Key, c.N, c.names(), asked.p.id)
		if op.DryRun {
			continue
		}
		w.ledger.doubt(c.Key, c.N, asked.at.Add(late))
		for _, name := range c.names() {
			w.bans.mayStart(ban{name, c.Key}, asked.at, asked.at.Add(late))
		}
	}
}

// failed records an acquire that ended with an error: nothing was counted, but an earlier attempt
// may have been refused, and have started a ban.
func (w *world) failed(asked *question, op *ruledOp) {
	for i := range op.Checks {
		for _, name := range op.Checks[i].names() {
			w.bans.mayStart(ban{name, op.Checks[i].Key}, asked.at, asked.at.Add(late))
		}
	}
}

// judge checks an answer against the version of the rules that it names, and records it.
func (w *world) judge(asked *question, op *ruledOp, got *ruledAnswer) {
	p, d := asked.p, w.rules.version(got.Version)
	for i := range op.Checks {
		c := &op.Checks[i]
		w.journal.note("client: %s %+d by %v at %s: asked at %s, %d checks, count denied %v, "+
			"charge %v, dry run %v: %+v", c.Key, c.N, c.names(), p.id, asked.at.Format("05.000"),
			len(op.Checks), op.CountDenied, op.Charge, op.DryRun, *got)
	}
	switch {
	case got.Version < asked.least:
		w.t.Errorf("node %s judges by version %d, and had %d", p.id, got.Version, asked.least)
	case d == nil:
		w.t.Errorf("node %s judges by version %d, which nobody has stored", p.id, got.Version)
		return
	case len(got.Checks) != len(op.Checks):
		w.t.Errorf("node %s: %d checks, %d answers", p.id, len(op.Checks), len(got.Checks))
		return
	}
	p.hasVersion(got.Version)
	held, refused := false, false
	for _, b := range got.Bans {
		held = held || !b.Started
	}
	for i := range got.Checks {
		refused = refused || !got.Checks[i].Allowed
	}
	if refused == got.Allowed {
		w.t.Errorf("node %s: allowed %v, but %+v", p.id, got.Allowed, got.Checks)
	}
	// The counts include the requested events.
	figured := got.Allowed || op.Charge || op.CountDenied && !held
	for i := range op.Checks {
		w.judgeCheck(asked, op, got, i, d, figured)
	}
}

// judgeCheck does the same for one check.
func (w *world) judgeCheck(asked *question, op *ruledOp, got *ruledAnswer, i int, d *document,
	figured bool) {
	c, p := &op.Checks[i], asked.p
	counted := figured && !op.DryRun
	v := decision{allowed: got.Allowed, counted: counted,
		verdict: verdict{asked: asked.at, told: asked.told, n: c.N, by: p.id, ip: p.ip,
			source: twotier.Source(got.Source), degraded: got.Degraded}}
	var want []answeredLimit
	for _, name := range c.names() {
		r := d.rule(name)
		v.rules = append(v.rules, r)
		for _, l := range r.of(c.Key) {
			if r.state != "off" {
				want = append(want, answeredLimit{Rule: name, Window: l.window, Max: l.most,
					Shadow: r.state == "shadow"})
			}
		}
	}
	limits := got.Checks[i].Limits
	if !slices.EqualFunc(limits, want, func(a, b answeredLimit) bool {
		a.Count, a.Refused = 0, false
		return a == b
	}) {
		w.t.Errorf("%s: node %s judges by %+v, version %d has %+v", c.Key, p.id, limits, d.number,
			want)
	}
	if counted {
		w.ledger.acknowledge(c.Key, c.N, w.plan.exact)
	}
	for _, r := range v.rules {
		w.judgeBan(asked, op, got, c, r, breachOf(r, c, limits, figured), &v)
	}
	w.bans.decide(c.Key, v)
}

// breach reports whether a limit of a rule was refused because of the counts.
type breach struct{ may, must bool }

// breachOf compares the limits of a rule. The figures of a refusal that counts nevertheless may
// include the requested events.
func breachOf(r *ruled, c *ruledCheck, limits []answeredLimit, figured bool) (b breach) {
	for _, l := range limits {
		if l.Rule == r.name && l.Refused {
			b.may = b.may || l.Count+c.N > l.Max
			b.must = b.must || l.Count > l.Max || !figured && l.Count+c.N > l.Max
		}
	}
	return b
}

// mayBeRepeated reports whether a verdict may come from a second attempt, which knows less than the
// first one: if an owner was missing then, another one may have refused, and started a ban. If
// Redis loses data, or another node decides, the second attempt may find no breach.
func (w *world) mayBeRepeated(v *decision) bool {
	return !w.plan.exact && (v.source == twotier.SourceFallback || v.told.Sub(v.asked) > quick)
}

// quick is how long an acquire takes at most if no attempt has failed.
const quick = 10 * time.Millisecond

// judgeBan checks an answer about the ban of one key by one rule: a breached rule bans from then
// on, nothing else does, and no request passes during a ban.
func (w *world) judgeBan(asked *question, op *ruledOp, got *ruledAnswer, c *ruledCheck, r *ruled,
	breached breach, v *decision) {
	said, b := fmt.Sprintf("%s: node %s by version %d, rule %+v: %+v", c.Key, asked.p.id,
		got.Version, *r, *got), ban{r.name, c.Key}
	found := -1
	for i, one := range got.Bans {
		if one.Rule == r.name && one.Key == c.Key {
			found = i
		}
	}
	switch {
	case found < 0 && r.bans() && breached.must && !op.DryRun:
		w.t.Errorf("%s: a breach without a ban", said)
	case found < 0:
		if !op.DryRun && w.mayBeRepeated(v) {
			w.bans.mayStart(b, v.asked, v.told)
		}
	case !r.bans() || got.Allowed:
		w.t.Errorf("%s: a ban by a rule that has none, or that lets it pass", said)
	case got.Bans[found].Started && (!breached.may || op.DryRun):
		w.t.Errorf("%s: a ban without a breach", said)
	case got.Bans[found].Started:
		began := time.UnixMilli(got.Bans[found].Until - r.ban)
		if began.Before(v.asked.Add(-w.plan.apart())) || began.After(v.told.Add(w.plan.apart())) {
			w.t.Errorf("%s: a ban ends at another time", said)
		}
		w.bans.start(b, r, v, got.Bans[found].Until)
	default:
		if breached.may || v.told.Sub(v.asked) > quick {
			// It may have started the ban itself, in an attempt after which an owner was missing,
			// and the breaching counts may have left the window since.
			w.bans.mayStart(b, v.asked, v.told)
		}
		w.bans.hold(b, r, v, got.Bans[found].Until)
	}
}
