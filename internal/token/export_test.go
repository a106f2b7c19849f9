package token

// Len returns the number of tokens.
func (s *Set) Len() int { return len(s.byHash) }
