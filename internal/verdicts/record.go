package verdicts

import "twotier.dev/twotier"

// Recorder records decisions one by one.
type Recorder interface {
	// ShouldRecord reports whether to record the next decision with this verdict.
	ShouldRecord(v twotier.Verdict) bool
	// Record records a decision without keeping any part of it.
	Record(d *twotier.Decision)
}

// record records one verdict.
func (r *Run) record(c *twotier.Check, o Origin, v twotier.Verdict, limits limitRange) {
	d := &twotier.Decision{Door: r.endpoint, NS: c.NS, Key: c.Key, N: c.N, Verdict: v,
		Version: o.Version, Distinct: o.Distinct}
	if o.Rule != nil {
		d.Rule = o.Rule.Name
	}
	for k := limits.from; k < limits.to; k++ {
		l := &limits.limits[k]
		most := l.Max
		if o.Rule != nil {
			most = limits.of(k).Max
		}
		d.Limits = append(d.Limits, twotier.Compared{Window: l.Window, Period: l.Period,
			Count: l.Count, Max: most})
	}
	r.Record(d)
}

// Record records a verdict for which ShouldRecord returned true.
func (r *Run) Record(d *twotier.Decision) {
	d.Door = r.endpoint
	if r.traced != nil {
		d.TraceID = r.traced.TraceContext().TraceID()
	}
	r.recorder.Record(d)
}
