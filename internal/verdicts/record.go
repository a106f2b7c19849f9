package verdicts

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/rule"
)

// Recorder records decisions one by one.
type Recorder interface {
	// Chosen reports whether to record the next decision with this verdict.
	Chosen(v rule.Verdict) bool
	// Record records a decision without keeping any part of it.
	Record(d *rule.Decision)
}

// record records one verdict.
func (r *Run) record(c *twotier.Check, o Origin, v rule.Verdict, limits compared) {
	d := &rule.Decision{Door: r.door, NS: c.NS, Key: c.Key, N: c.N, Verdict: v,
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
		d.Limits = append(d.Limits, rule.Compared{Window: l.Window, Count: l.Count, Max: most})
	}
	r.Record(d)
}

// Record records a verdict for which Records returned true.
func (r *Run) Record(d *rule.Decision) {
	d.Door = r.door
	if r.traced != nil {
		d.TraceID = r.traced.TraceContext().TraceID()
	}
	r.recorder.Record(d)
}
