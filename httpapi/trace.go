package httpapi

import "github.com/valyala/fasthttp"

// headerTrace is the header of W3C Trace Context, https://www.w3.org/TR/trace-context/.
const headerTrace = "traceparent"

// The places of a traceparent: VERSION-TRACEID-PARENTID-FLAGS, in lower-case hexadecimal digits.
const (
	traceStart  = 3
	traceEnd    = traceStart + 32
	parentStart = traceEnd + 1
	parentEnd   = parentStart + 16
	traceLength = parentEnd + 3
)

// traceID returns the ID of the trace that a request is part of, or nil if it says none, says
// several, or says it in a way that the specification has receivers ignore. It is a view into the
// header.
func traceID(h *fasthttp.RequestHeader) []byte {
	all := h.PeekAll(headerTrace)
	if len(all) != 1 {
		return nil
	}
	v := all[0]
	switch {
	case len(v) < traceLength, v[2] != '-', v[traceEnd] != '-', v[parentEnd] != '-':
		return nil
	case string(v[:2]) == "ff", !isHex(v[:2]), !isHex(v[parentEnd+1 : traceLength]):
		return nil
	case len(v) > traceLength && (string(v[:2]) == "00" || v[traceLength] != '-'):
		return nil // only later versions may have more
	case !isID(v[traceStart:traceEnd]), !isID(v[parentStart:parentEnd]):
		return nil
	}
	return v[traceStart:traceEnd]
}

// isID reports whether b is a valid ID: hexadecimal digits that are not all 0.
func isID(b []byte) bool {
	for _, c := range b {
		if c != '0' {
			return isHex(b)
		}
	}
	return false
}

func isHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
