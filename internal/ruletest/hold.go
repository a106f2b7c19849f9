package ruletest

import (
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/strictyaml"
)

// readHold reads a field about a hold, and reports whether the key is one.
func (r *reader) readHold(s *step, key string, to *strictyaml.Node) bool {
	switch key {
	case "hold":
		s.op.Hold = r.duration(to, key)
	case "on_expiry":
		text, _ := r.Text(to, key)
		if s.op.Release = text == "release"; text != "release" && text != "keep" {
			r.Fail(to, "on_expiry: %q is neither keep nor release", text)
		}
	case "as":
		s.as, _ = r.Text(to, key)
	case "settle":
		s.settle, _ = r.Text(to, key)
	case "renew":
		s.renew, _ = r.Text(to, key)
	case "for":
		s.lasts = r.duration(to, key)
	default:
		return false
	}
	return true
}

// checkNames checks that a hold that a step names was made before, and remembers the one that it
// makes.
func (r *reader) checkNames(s *step, item *strictyaml.Node, seen map[string]bool) {
	if seen["settle"] && !r.held[s.settle] {
		r.Fail(item, "settle: no step before has hold and as: %s", s.settle)
	}
	if seen["renew"] && !r.held[s.renew] {
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
