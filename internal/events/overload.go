package events

import (
	"fmt"
	"strings"

	"twotier.dev/twotier/internal/cluster"
)

// calm is the time without refusals after which overload ends, in milliseconds: overload comes and
// goes.
const calm = 5000

// excess is overload in progress.
type excess struct {
	before []Refused // the totals when it began
	last   int64     // when anything was refused or had to wait
}

// recordOverload records when requests begin to be refused because of the node's limits, or to wait
// for the store, and when that has stopped for a while, with the number of refusals and their
// reasons. A refusal concerns only the node that refuses, even if others refuse as well.
func (l *Log) recordOverload(s *State) {
	reasons, n := describeGrowth(l.last.Refused, s.Refused)
	now := l.now()
	switch {
	case n > 0 || s.Waiting > 0:
		if l.excess == nil {
			l.excess = &excess{before: l.last.Refused}
			if n == 0 {
				reasons = "writes wait, because Redis is too far behind"
			}
			l.add(cluster.Overload, l.node, "%s is overloaded: %s", l.node, reasons)
		}
		l.excess.last = now
	case l.excess != nil && now < l.excess.last: // the clock was set
		l.excess.last = now
	case l.excess != nil && now-l.excess.last >= calm:
		reasons, n := describeGrowth(l.excess.before, s.Refused)
		if n == 0 {
			reasons = "nothing was refused"
		}
		l.excess = nil
		l.add(cluster.OverloadOver, l.node, "%s is not overloaded any more: %s", l.node, reasons)
	}
}

// describeGrowth describes the refusals since before, by reason, and returns their number.
func describeGrowth(before, after []Refused) (text string, n int64) {
	var parts []string
	for i, r := range after {
		more := r.Total
		if i < len(before) {
			more -= before[i].Total
		}
		if more > 0 {
			n += more
			parts = append(parts, fmt.Sprintf("%d refused, because %s", more, r.Why))
		}
	}
	return strings.Join(parts, "; "), n
}
