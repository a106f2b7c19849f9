package rule

// Decision is one verdict on an acquire, or on values to be added, with what it was about, for
// those who record decisions.
type Decision struct {
	// Door is how the acquire was asked for, such as "http".
	Door string
	// NS and Key are what was judged. They are views into memory of the request. An empty namespace
	// is the default one.
	NS, Key []byte
	// N is how many events were asked for, or how many values if Distinct is set: the limits are on
	// different ones.
	N        int64
	Distinct bool
	// Rule is the rule that judged, and Version the version of the rules that it is of. It is empty
	// for limits without a name. The version is 0 for limits that the request brought along.
	Rule    string
	Version int64
	Verdict Verdict
	// Limits are the limits that were compared.
	Limits []Compared
	// TraceID is the ID of the trace that the request is part of, in hexadecimal digits, or empty.
	TraceID string
}

// Compared is a limit with the count that was compared with it.
type Compared struct {
	// Window is in milliseconds.
	Window int64
	// Count includes what was asked for if it was counted.
	Count int64
	// Max is what the rule says, whatever its state.
	Max int64
}
