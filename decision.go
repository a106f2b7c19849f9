package twotier

// Decision is one verdict on an acquire, or on an addition of values, with the details that a
// decision log needs.
type Decision struct {
	// Door is the interface that the request came in on, such as "http".
	Door string
	// NS and Key are the judged key. They are views into memory of the request. An empty namespace
	// is the default one.
	NS, Key []byte
	// N is the number of events requested or, if Distinct is set, of values: the limits are then on
	// different values.
	N        int64
	Distinct bool
	// Rule is the rule that judged, empty for limits without a name. Version is its version of the
	// rules, 0 for limits that the request carried itself.
	Rule    string
	Version int64
	Verdict Verdict
	// Limits are the limits that were compared.
	Limits []Compared
	// TraceID is the ID of the request's trace in hexadecimal digits, or empty.
	TraceID string
}

// Compared is a limit with the count that was compared with it.
type Compared struct {
	// Window is in milliseconds; 0 if there is a Period.
	Window int64
	Period *Period
	// Count includes the requested events or values if they were counted.
	Count int64
	// Max is the limit in the rule, whatever the rule's state.
	Max int64
}
