package distinct

// Call is one of several operations that run together, and its outcome.
type Call struct {
	Op *Op
	// Values are the values to add.
	Values [][]byte
	Res    *Result
	Err    error
}
