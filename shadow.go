package twotier

// Shadow determines, by namespace, whether limits are judged and reported, but refuse nothing. A
// namespace that is not listed is like DefaultNamespace; if that is not listed either, its limits
// refuse.
type Shadow map[string]bool

// In reports whether the limits of a namespace refuse nothing. An empty namespace is the default
// one.
func (s Shadow) In(ns []byte) bool {
	if in, listed := s[string(ns)]; listed {
		return in
	}
	return s[DefaultNamespace]
}

// PutInShadow puts the rules of namespaces in shadow into shadow, except rules that are off. Call
// it before the set is in use.
func (s *RuleSet) PutInShadow(shadow Shadow) {
	for _, r := range s.byName {
		if r.State == RuleOn && shadow.In([]byte(r.Space())) {
			r.State = RuleShadow
		}
	}
}
