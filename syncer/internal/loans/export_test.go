package loans

// Lendable returns how many more events may be lent.
func Lendable(most, left, lent, own, borrowers int64) int64 {
	return lendable(most, left, lent, own, borrowers)
}
