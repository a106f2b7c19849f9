package multiowner

import (
	"bytes"

	"twotier.dev/twotier"
)

// merge combines the parts' answers in the order of the checks.
func (a *acquire) merge(res *twotier.Result) {
	res.Reset()
	res.Allowed, res.Source = a.admitted(a.parts), twotier.SourceOwner
	for range a.op.Checks {
		res.AddCheck()
	}
	for i := range a.parts {
		p := &a.parts[i]
		for k, at := range p.Checks {
			if k < len(p.res.Checks) {
				res.Checks[at] = p.res.Checks[k]
			}
		}
		res.Degraded = res.Degraded || p.res.Degraded
		if s := p.res.Source; s == twotier.SourceDegraded ||
			s == twotier.SourceFallback && res.Source == twotier.SourceOwner {
			res.Source = s
		}
		res.AgeMS = max(res.AgeMS, p.res.AgeMS)
		if r := p.res.RetryAfter; r < 0 || res.RetryAfter >= 0 && r > res.RetryAfter {
			res.RetryAfter = r
		}
	}
	if !res.Allowed {
		a.subtract(res, a.op.CountsRefused(res))
	}
}

// subtract subtracts undone reservations from the counts in the answer, for the parts that their
// owners had admitted: all of them or, if the refusal is counted, only the leases. How many of the
// values were new is unknown, so their counts remain, and only the lower bounds leave them out.
func (a *acquire) subtract(res *twotier.Result, counted bool) {
	for i := range a.parts {
		if !a.parts[i].res.Allowed {
			continue
		}
		for _, at := range a.parts[i].Checks {
			if counted && !a.op.Checks[at].IsLease() {
				continue
			}
			n := a.reservedAmount(&a.parts[i], at)
			res.Checks[at].TS = 0
			for j := range res.Checks[at].Limits {
				l := &res.Checks[at].Limits[j]
				if a.op.Checks[at].IsValues() {
					l.Lo = max(0, l.Lo-n)
				} else {
					l.Count, l.Lo, l.Hi = l.Count-n, l.Lo-n, l.Hi-n
				}
			}
		}
	}
}

// reservedAmount returns the amount that a node reserved of a check's key.
func (a *acquire) reservedAmount(p *part, at int) (n int64) {
	name := a.op.Checks[at].AppendName(nil)
	for _, i := range p.Checks {
		if o := &a.op.Checks[i]; bytes.Equal(o.AppendName(nil), name) {
			n += o.N
		}
	}
	return n
}
