package ask

import (
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// Request holds the operations of a request. All operations, checks and limits are in three slices
// that the next request reuses, so that a request allocates nothing once they have grown.
type Request struct {
	// Ops are the operations. Their checks and limits are valid from Link until Reset.
	Ops []twotier.Op
	// Grant limits the operations; nil allows everything.
	Grant *twotier.Grant
	// Rules resolves the names of rules; nil if there are none.
	Rules Rules
	// Shadow determines the namespaces in which the limits of acquires refuse nothing; nil if there
	// are none. The limits of rules depend on Rules alone.
	Shadow twotier.Shadow
	// Words are the endpoint's words in error messages. Default: the words of HTTP.
	Words Words
	// Holds makes and settles holds; nil if there are none.
	Holds *Holds

	forms   []opForm // parallel to Ops
	checks  []twotier.Check
	starts  []int // parallel to checks: where the limits of each begin
	limits  []twotier.Limit
	texts   [][]byte          // parallel to limits: the spelling of the window; nil in ruled ones
	ruled   []ruledLimit      // the limits of rules, in order
	bans    []twotier.BanRule // Check is an index in checks until Link
	leases  []twotier.Lease   // likewise
	values  []checkValues     // in order
	results []twotier.Result
	refused []refusedOp // in order, once CountVerdicts has recorded them

	inForce *twotier.RuleSet      // the rules of this request, once one is named
	naming  []*twotier.Rule       // the rules named by the check in progress
	found   [][]twotier.RuleLimit // parallel to naming once PrepareCheck has found their limits
	op      position              // where the operation in progress begins
	start   int                   // where the limits of the check in progress begin
	charge  bool                  // a rule charges the operation in progress
	charges bool                  // a rule would, if it were on
	warns   bool                  // a rule of the request has a warning level
	limited []twotier.Lease       // the limits of the check in progress on leases
	adding  checkValues           // the values of the check in progress
	aside   []twotier.Limit       // limits on them, or windows, that follow others in the end
	texted  [][]byte              // parallel to aside
	run     verdicts.Run          // counts the verdicts

	releases bool           // a hold of the request is released at its end
	made     map[int]string // the ids of holds that AwaitDeadlines has made, by their operations
}

// opForm records how the request spelled an operation.
type opForm struct {
	first int // index of its first check
	count int // number of its checks
	tag   uint8
}

// position is a position in the lists of a request.
type position struct{ checks, limits, ruled int }

// Reset forgets everything except the grant, the rules and the words.
func (r *Request) Reset() {
	r.Ops, r.forms = r.Ops[:0], r.forms[:0]
	r.truncate(position{})
	r.warns, r.releases, r.made = false, false, nil
	r.ForgetRules()
}

// ForgetRules makes the next name resolve in the rules that are then in force.
func (r *Request) ForgetRules() { r.inForce, r.naming = nil, r.naming[:0] }

// truncate forgets the checks and limits from m on.
func (r *Request) truncate(m position) {
	r.checks, r.starts = r.checks[:m.checks], r.starts[:m.checks]
	r.limits, r.texts = r.limits[:m.limits], r.texts[:m.limits]
	r.ruled = r.ruled[:m.ruled]
	for n := len(r.bans); n > 0 && r.bans[n-1].Check >= m.checks; n-- {
		r.bans = r.bans[:n-1]
	}
	for n := len(r.leases); n > 0 && r.leases[n-1].Check >= m.checks; n-- {
		r.leases = r.leases[:n-1]
	}
	for n := len(r.values); n > 0 && r.values[n-1].check >= m.checks; n-- {
		r.values = r.values[:n-1]
	}
}

// BeginOp begins an operation and its first check.
func (r *Request) BeginOp() {
	r.op = position{len(r.checks), len(r.limits), len(r.ruled)}
	r.charge, r.charges = false, false
	r.BeginCheck()
}

// BeginCheck begins another check of the operation in progress.
func (r *Request) BeginCheck() {
	r.start, r.naming, r.found = len(r.limits), r.naming[:0], r.found[:0]
	r.limited, r.adding = r.limited[:0], checkValues{}
	r.aside, r.texted = r.aside[:0], r.texted[:0]
}

// NeedsHold reports whether the operation in progress has a hold, or limits on leases: then call
// CheckHold.
func (r *Request) NeedsHold(op *twotier.Op) bool {
	return op.Hold != 0 || op.Release || len(r.leases) > 0
}

// HasReleases reports whether the request has a hold that is released at its end: then call
// AwaitDeadlines once its operations are executed.
func (r *Request) HasReleases() bool { return r.releases }

// LimitLeases makes the check in progress take a lease, if at most that many leases of its key are
// open with it.
func (r *Request) LimitLeases(most int64) {
	r.limited = append(r.limited, twotier.Lease{Max: most})
}

// AddLimit adds a limit, whose window is spelled text, to the check in progress.
func (r *Request) AddLimit(l twotier.Limit, text []byte) {
	r.limits, r.texts = append(r.limits, l), append(r.texts, text)
}

// LimitCount returns how many limits the check in progress has so far.
func (r *Request) LimitCount() int { return len(r.limits) - r.start }

// CheckCount returns how many checks the operation in progress has so far.
func (r *Request) CheckCount() int { return len(r.checks) - r.op.checks }

// HasRules reports whether the request has limits of rules so far, or limits in shadow.
func (r *Request) HasRules() bool { return len(r.ruled) > 0 }

// HasValues reports whether the request has values so far, or limits on them.
func (r *Request) HasValues() bool {
	return len(r.values)+len(r.adding.add)+len(r.aside) > 0
}

// Warns reports whether a rule of the request has a warning level.
func (r *Request) Warns() bool { return r.warns }

// RuledCount returns how many limits of rules the request has so far, including all limits on
// values.
func (r *Request) RuledCount() int {
	n := len(r.ruled)
	for i := range r.values {
		n += r.values[i].unruled
	}
	return n
}

// OpRuledCount returns how many limits of rules on events the operation in progress has so far.
func (r *Request) OpRuledCount() (n int) {
	for i := r.op.ruled; i < len(r.ruled); i++ {
		if r.ruled[i].isNamed() && !r.ruled[i].Distinct {
			n++
		}
	}
	return n
}

// OpSize returns the number of bytes in the keys of the operation in progress, and how many limits
// on events it has.
func (r *Request) OpSize() (keys, limits int) {
	for _, c := range r.checks[r.op.checks:] {
		keys += len(c.Key)
	}
	limits = len(r.limits) - r.op.limits
	for n := len(r.values); n > 0 && r.values[n-1].check >= r.op.checks; n-- {
		limits -= r.values[n-1].limits
	}
	return keys, limits
}

// wantNoLeases is the reason for refusing limits on leases.
const wantNoLeases = "only an acquire can limit how many are open at the same time"

// PrepareCheck checks that the check in progress has everything its operation needs, and finds the
// rules that judge it: the rules that it names or, if an acquire names neither rules nor limits,
// the default rules of its namespace. It returns how many limits EndCheck adds for them, and how
// many of them ban, so that the caller can bound both.
func (r *Request) PrepareCheck(c *twotier.Check, kind twotier.Kind) (limits, bans int,
	f *request.Failure) {
	if len(r.naming) > 0 || kind == twotier.Acquire && len(r.limits) == r.start &&
		len(r.limited)+len(r.aside) == 0 {
		if limits, bans, f = r.findRuleLimits(c, kind); f != nil {
			return 0, 0, f
		}
	}
	if r.HasValues() {
		if f = r.prepareValues(c); f != nil {
			return 0, 0, f
		}
	}
	if r.Grant != nil {
		if f := CheckGrant(r.Grant, roleOf(kind), c.NS); f != nil {
			return 0, 0, f
		}
	}
	switch missing := len(r.limits)+limits == r.start &&
		len(r.limited)+len(r.naming)+len(r.adding.add) == 0; {
	case c.Key == nil:
		f = request.FieldFailure("key", "missing; "+request.WantKey)
	case kind == twotier.Add && (c.N == 0 || c.N > request.MaxN || c.N < -request.MaxN):
		f = request.FieldFailure("n", request.WantAddN)
	case kind == twotier.Acquire && (c.N < 0 || c.N > request.MaxN):
		f = request.FieldFailure("n", request.WantAcquireN)
	case kind != twotier.Acquire && len(r.limited) > 0:
		f = request.FieldFailure("limits", wantNoLeases)
	case kind == twotier.Acquire && missing:
		f = request.FieldFailure("limits", "missing; want at least one "+r.words().Limits)
	case kind == twotier.Count && missing:
		f = request.FieldFailure("window", "missing; "+request.WantLimitWindow)
	}
	return limits, bans, f
}

// EndCheck adds the check in progress, which PrepareCheck has accepted, to the operation, with the
// limits of its rules.
func (r *Request) EndCheck(c *twotier.Check, kind twotier.Kind) {
	if r.Shadow != nil && r.IsInShadow(c, kind) {
		r.shadowLimits(r.start, false)
	}
	if len(r.found) > 0 {
		r.addRuleLimits(kind)
	}
	for _, l := range r.limited {
		l.Check = len(r.checks)
		l.Shadow = l.Shadow || l.Rule == "" && r.Shadow != nil && r.IsInShadow(c, kind)
		r.leases = append(r.leases, l)
	}
	if len(r.adding.add) > 0 {
		if len(r.limits) == r.start { // nothing judges events
			c.N = 0
		}
		r.endValues(c, len(r.limits))
	}
	r.checks = append(r.checks, *c)
	r.starts = append(r.starts, r.start)
}

// EndOp adds the operation in progress. Its tag is for the endpoint, see [Request.Tag].
func (r *Request) EndOp(op *twotier.Op, tag uint8) {
	r.Ops = append(r.Ops, *op)
	if op.Kind == twotier.Acquire {
		last := &r.Ops[len(r.Ops)-1]
		last.Charge = op.Charge || r.charge
		last.DryRun = op.DryRun || op.Hold == 0 && r.countsNothing()
	}
	r.forms = append(r.forms, opForm{r.op.checks, len(r.checks) - r.op.checks, tag})
}

// countsNothing reports whether all checks of the operation in progress are of 0 events, and have
// no values.
func (r *Request) countsNothing() bool {
	if len(r.values) > 0 && r.addsValues() {
		return false
	}
	for i := r.op.checks; i < len(r.checks); i++ {
		if r.checks[i].N != 0 {
			return false
		}
	}
	return true
}

// DropOp forgets the checks and limits of the operation in progress.
func (r *Request) DropOp() { r.truncate(r.op) }

// Tag returns the tag of operation i.
func (r *Request) Tag(i int) uint8 { return r.forms[i].tag }

// Link points operations to their checks and checks to their limits, once all of them have been
// added.
func (r *Request) Link() {
	end := len(r.limits)
	for i := len(r.checks) - 1; i >= 0; i-- {
		r.checks[i].Limits = r.limits[r.starts[i]:end:end]
		end = r.starts[i]
	}
	for i, f := range r.forms {
		end := f.first + f.count
		r.Ops[i].Checks = r.checks[f.first:end:end]
	}
	if len(r.bans) > 0 {
		r.linkBans()
	}
	if len(r.leases) > 0 {
		r.linkLeases()
	}
	if len(r.values) > 0 {
		r.linkValues()
	}
}

// EmptyResults returns an empty result for each operation. They are valid until the next call.
func (r *Request) EmptyResults() []twotier.Result {
	n := len(r.Ops)
	if n > cap(r.results) {
		r.results = slices.Grow(r.results[:cap(r.results)], n-cap(r.results))
	}
	r.results = r.results[:cap(r.results)]
	for i := range r.results[:n] {
		r.results[i].Reset()
	}
	return r.results[:n]
}

// Results returns the results of the last EmptyResults.
func (r *Request) Results() []twotier.Result { return r.results[:len(r.Ops)] }

// LimitCapacity returns how many limits fit in the memory of the request.
func (r *Request) LimitCapacity() int { return cap(r.limits) }

// ResultCapacity returns how many results fit in the memory of the request.
func (r *Request) ResultCapacity() int { return cap(r.results) }

// WindowText returns the window of limit k of check j of operation i as the request spells it, or
// nil for a limit of a rule, whose Text it is, and for a period that the request spells in fields.
func (r *Request) WindowText(i, j, k int) []byte { return r.texts[r.limitAt(i, j)+k] }

// limitAt returns where the limits of check j of operation i begin.
func (r *Request) limitAt(i, j int) int { return r.starts[r.forms[i].first+j] }

// CountVerdicts counts the verdicts on the executed acquires of the request. Answers that follow
// contain the ids of refusals. Nil counters count nothing.
func (r *Request) CountVerdicts(c *verdicts.Counters, of *verdicts.Arrival) {
	if c == nil {
		return
	}
	run := &r.run
	run.Begin(c, of)
	r.refused = r.refused[:0]
	if len(r.leases) > 0 {
		run.LeaseRules = r.RulesVersion()
	}
	for i := range r.Ops {
		op, res := &r.Ops[i], &r.results[i]
		if res.Err != nil || !verdicts.Decides(op) {
			continue
		}
		run.BeginDecision()
		for j := range op.Checks {
			run.BeginCheck()
			if !r.HasValues() {
				run.CountCheck(op, j, res, r.rulesOf(i, j))
				continue
			}
			v := r.ValuesOf(i, j, res)
			if v.Result == nil || len(op.Checks[j].Limits) > 0 {
				run.CountCheck(op, j, res, r.rulesOf(i, j))
			}
			if v.Result != nil {
				r.countValues(i, j, v)
			}
		}
		if !res.Allowed && !run.RefusalID().IsZero() {
			r.refused = append(r.refused, refusedOp{i, run.RefusalID()})
		}
	}
	took := time.Duration(0)
	if run.HasDecision() {
		took = time.Since(of.Began)
	}
	run.End(took)
}

// refusedOp is a refused operation and the id of the refusal.
type refusedOp struct {
	op int
	id decisions.RefusalID
}

// RefusalOf returns the id of the refusal of operation i, or a zero one if none was recorded.
func (r *Request) RefusalOf(i int) (id decisions.RefusalID) {
	at, ok := slices.BinarySearchFunc(r.refused, i, func(o refusedOp, op int) int {
		return o.op - op
	})
	if ok {
		id = r.refused[at].id
	}
	return id
}

// rulesOf returns RuleOf for check j of operation i, or nil if no rule judged the request.
func (r *Request) rulesOf(i, j int) func(k int) *verdicts.Ruled {
	if len(r.ruled) == 0 {
		return nil
	}
	return func(k int) *verdicts.Ruled { return r.RuleOf(i, j, k) }
}
