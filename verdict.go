package twotier

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is the outcome of an acquire under a rule, or under a limit without a rule.
type Verdict uint8

// The verdicts.
const (
	Allowed Verdict = iota
	Refused
	// ShadowRefused is the verdict of a rule in shadow that would have refused.
	ShadowRefused
	// Near is the verdict of a rule that allows, on or in shadow, with a count at or above its
	// warning level, see Rule.Warn.
	Near
)

// VerdictCount is the number of verdicts.
const VerdictCount = 4

// verdicts are the names of the verdicts, in their order.
var verdicts = [VerdictCount]string{"allowed", "refused", "shadow_refused", "near"}

// String returns "allowed", "refused", "shadow_refused" or "near".
func (v Verdict) String() string { return verdicts[v] }

// ParseVerdict reads what String returns.
func ParseVerdict(text string) (Verdict, error) {
	i := slices.Index(verdicts[:], text)
	if i < 0 {
		last := VerdictCount - 1
		return 0, fmt.Errorf("%q is not one of %s and %s", text,
			strings.Join(verdicts[:last], ", "), verdicts[last])
	}
	return Verdict(i), nil
}

// VerdictOf returns the verdict of limits, given whether they refuse and whether their rule is in
// shadow.
func VerdictOf(refuses, shadow bool) Verdict {
	switch {
	case !refuses:
		return Allowed
	case shadow:
		return ShadowRefused
	}
	return Refused
}
