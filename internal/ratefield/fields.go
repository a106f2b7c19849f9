package ratefield

import "strconv"

// maxInteger is the largest Integer of RFC 9651, section 3.3.1. Larger numbers are capped at it.
const maxInteger = 999_999_999_999_999

// Limit is the state of one limit after a decision.
type Limit struct {
	// Name is the name of the policy. Characters that a String can't contain are replaced.
	Name string
	// Max is the quota: the number of events in any window. Window is in milliseconds.
	Max, Window int64
	// Remaining is how many more events the limit allows; negative numbers count as 0.
	Remaining int64
	// Wait is the number of milliseconds until there is room again; 0 and less show nothing.
	Wait int64
}

// Fields holds the values of the two fields. Its zero value has no limits.
type Fields struct{ policy, state []byte }

// Add adds a limit.
func (f *Fields) Add(l *Limit) {
	if len(f.policy) > 0 {
		f.policy, f.state = append(f.policy, ", "...), append(f.state, ", "...)
	}
	f.policy = appendParameter(appendString(f.policy, l.Name), ";q=", l.Max)
	f.policy = appendParameter(f.policy, ";w=", Seconds(l.Window))
	f.state = appendParameter(appendString(f.state, l.Name), ";r=", l.Remaining)
	if l.Wait > 0 {
		f.state = appendParameter(f.state, ";t=", Seconds(l.Wait))
	}
}

// Policy returns the value of RateLimit-Policy, "" if there are no limits.
func (f *Fields) Policy() string { return string(f.policy) }

// State returns the value of RateLimit, "" if there are no limits.
func (f *Fields) State() string { return string(f.state) }

// Seconds rounds milliseconds up to whole seconds.
func Seconds(ms int64) int64 { return ms/1000 + min(1, ms%1000) }

// appendString appends a String of RFC 9651, section 3.3.3: printable ASCII. It needs no escapes,
// since quotes and backslashes are replaced, too.
func appendString(b []byte, text string) []byte {
	b = append(b, '"')
	for _, r := range text {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			r = '_'
		}
		b = append(b, byte(r))
	}
	return append(b, '"')
}

// appendParameter appends a parameter with an integer value.
func appendParameter(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), min(max(0, n), maxInteger), 10)
}
