package trace

import "strings"

// Source is a request that may be part of a trace.
type Source interface {
	// TraceID returns the ID of the trace in hexadecimal digits, or "" if it is part of none.
	TraceID() string
}

// Positions in a traceparent: VERSION-TRACEID-PARENTID-FLAGS, in lower-case hexadecimal digits.
const (
	idStart   = 3
	idEnd     = idStart + 32
	spanStart = idEnd + 1
	spanEnd   = spanStart + 16
	length    = spanEnd + 3
)

// ParseID returns the ID of the trace in the header traceparent of a request. It returns "" for a
// header that the specification requires receivers to ignore.
func ParseID(parent string) string {
	switch {
	case len(parent) < length, parent[2] != '-', parent[idEnd] != '-', parent[spanEnd] != '-':
		return ""
	case parent[:2] == "ff", !isHex(parent[:2]), !isHex(parent[spanEnd+1 : length]):
		return ""
	case len(parent) > length && (parent[:2] == "00" || parent[length] != '-'):
		return "" // only later versions may have more
	case !isHex(parent[idStart:idEnd]), !isHex(parent[spanStart:spanEnd]):
		return ""
	case isZero(parent[idStart:idEnd]), isZero(parent[spanStart:spanEnd]):
		return ""
	}
	return parent[idStart:idEnd]
}

// isZero reports whether digits are those of an invalid ID.
func isZero(digits string) bool { return strings.Trim(digits, "0") == "" }

// isHex reports whether text consists of lower-case hexadecimal digits.
func isHex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }
