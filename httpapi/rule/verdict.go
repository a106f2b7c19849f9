package rule

// Verdict is what a rule, or a limit that is of no rule, has to say about an acquire.
type Verdict uint8

// The verdicts.
const (
	Allowed Verdict = iota
	Refused
	// ShadowRefused is the verdict of a rule in shadow that would have refused.
	ShadowRefused
)

// Verdicts is the number of verdicts.
const Verdicts = 3

// String returns "allowed", "refused" or "shadow_refused".
func (v Verdict) String() string {
	return [Verdicts]string{"allowed", "refused", "shadow_refused"}[v]
}

// VerdictOf returns the verdict of limits that refuse, or don't, and that are of a rule in shadow,
// or not.
func VerdictOf(refuses, shadow bool) Verdict {
	switch {
	case !refuses:
		return Allowed
	case shadow:
		return ShadowRefused
	}
	return Refused
}
