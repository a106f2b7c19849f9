package ruletest

import (
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/strictyaml"
)

// checkNames checks that a hold that a step names was made before, and remembers the one that it
// makes.
func (r *reader) checkNames(s *step, item *strictyaml.Node, has map[string]*strictyaml.Node) {
	if has["settle"] != nil && !r.held[s.settle] {
		r.Fail(item, "settle: no step before has hold and as: %s", s.settle)
	}
	if has["renew"] != nil && !r.held[s.renew] {
		r.Fail(item, "renew: no step before has hold and as: %s", s.renew)
	}
	if s.as != "" {
		r.held[s.as] = true
	}
}

// holdConflict is conflict for the fields about holds. has returns the first key that a step has.
func (s *step) holdConflict(kind string, has func(keys ...string) string) string {
	asked := has("key", "checks", "values", "descriptors", "rules", "hold", "on_expiry", "ns") +
		has(fields.Steps().Names()...)
	answer := has("expect", "by", "near", "shadow", "retry_after", "counts")
	switch {
	case kind == "settle" && (asked != "" || has("renew", "for") != ""):
		return "settle: want only n with it"
	case kind == "settle" && has("n") == "":
		return "settle: want n with it, the number of events in the end; 0 releases the hold"
	case kind == "settle" && answer != "":
		return "settle: of the answer want only over"
	case kind == "renew" && (asked != "" || answer != "" || has("n", "over") != ""):
		return "renew: want only for with it"
	case kind == "renew" && s.lasts == 0:
		return "renew: want for with it, such as for: 5m, the time until the new end"
	case kind != "renew" && has("for") != "":
		return "for: only a renewal has it"
	case kind != "settle" && has("over") != "":
		return "over: only a settlement has it"
	case (s.as != "") != (s.op.Hold > 0):
		return "hold and as: want both, such as hold: 90s and as: first, or neither"
	case has("on_expiry") != "" && s.op.Hold == 0:
		return "on_expiry: want it only together with hold"
	}
	return ""
}
