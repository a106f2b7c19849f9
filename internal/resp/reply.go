package resp

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"twotier.dev/twotier/internal/request"
)

// The replies of RESP. Functions append to b and return it.

func appendInt(b []byte, v int64) []byte {
	if 0 <= v && v < 10 {
		return append(b, ':', byte('0'+v), '\r', '\n')
	}
	b = append(b, ':')
	b = strconv.AppendInt(b, v, 10)
	return append(b, '\r', '\n')
}

func appendArray(b []byte, n int) []byte { return appendHeader(b, '*', n) }

func appendHeader(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

func appendBulk[T string | []byte](b []byte, text T) []byte {
	b = appendHeader(b, '$', len(text))
	b = append(b, text...)
	return append(b, '\r', '\n')
}

func appendSimple(b []byte, text string) []byte {
	b = append(b, '+')
	b = append(b, text...)
	return append(b, '\r', '\n')
}

// appendError appends an error, whose text must not have line breaks.
func appendError(b []byte, e errorReply) []byte {
	b = append(b, '-')
	b = append(b, e...)
	return append(b, '\r', '\n')
}

// appendMap appends the header of a map of n pairs, which RESP2 shows as an array.
func (v version) appendMap(b []byte, n int) []byte {
	if v == resp3 {
		return appendHeader(b, '%', n)
	}
	return appendArray(b, 2*n)
}

// appendNull appends the absence of a value.
func (v version) appendNull(b []byte) []byte {
	if v == resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// version is the version of the protocol that a connection speaks.
type version uint8

const (
	resp2 version = 2
	resp3 version = 3
)

// errorReply is the text of an error: a code in capital letters, and the reason. The empty text
// means no error.
type errorReply string

// The error codes; docs/doors.md has the table.
const (
	// codeErr: the command can't be executed as it is; it would fail again.
	codeErr = "ERR"
	// codeNoAuth: the connection has not authenticated, or its token was withdrawn. codeWrongPass:
	// the token is unknown. codeNoPerm: the token does not grant the command.
	codeNoAuth, codeWrongPass, codeNoPerm = "NOAUTH", "WRONGPASS", "NOPERM"
	// codeNoProto: HELLO asks for an unsupported version of the protocol.
	codeNoProto = "NOPROTO"
	// codeBusy: a limit of this node is reached. codeTryAgain: the node can't give a correct answer
	// now. Nothing was counted; the text carries the time to wait.
	codeBusy, codeTryAgain = "BUSY", "TRYAGAIN"
	// codeUnknown: a write may or may not have happened.
	codeUnknown = "UNKNOWN"
	// codeRefused: default rules refused values, in an answer that has no field for a verdict.
	codeRefused = "REFUSED"
	// codeExecAbort: EXEC executed none of the queued commands.
	codeExecAbort = "EXECABORT"
)

// errorCodes lists the codes, for metrics.
func errorCodes() []string {
	return []string{codeErr, codeNoAuth, codeWrongPass, codeNoPerm, codeNoProto, codeBusy,
		codeTryAgain, codeUnknown, codeRefused, codeExecAbort}
}

// errorf returns an error with a code. It drops control characters, because a line break would end
// the reply.
func errorf(code, format string, args ...any) errorReply {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, fmt.Sprintf(format, args...))
	return errorReply(code + " " + text)
}

// fieldError returns the error for a well-formed but unacceptable argument.
func fieldError(field, detail string) errorReply { return errorf(codeErr, "%s: %s", field, detail) }

// errorOf converts an error of the service into a reply.
func (s *Server) errorOf(err error, f request.Failure) errorReply {
	if f.Kind == request.Internal {
		s.opts.Logger.Error("unexpected error of an operation", "err", err)
	}
	return errorOfFailure(&f)
}

// errorOfFailure converts a failure into a reply.
func errorOfFailure(f *request.Failure) errorReply {
	switch f.Kind {
	case request.Invalid:
		if f.Field != "" {
			return fieldError(f.Field, f.Detail)
		}
	case request.Forbidden:
		return errorf(codeNoPerm, "%s", f.Detail)
	case request.Overload:
		return errorf(codeBusy, "%s; nothing was counted; retry_after_ms=%d", f.Detail,
			max(f.After.Milliseconds(), leastRetry))
	case request.Unavailable:
		return errorf(codeTryAgain, "%s; nothing was counted; retry_after_ms=%d", f.Detail,
			leastRetry)
	case request.Unknown:
		return errorf(codeUnknown, "%s", f.Detail)
	}
	return errorf(codeErr, "%s", f.Detail)
}

// leastRetry is the shortest wait that a client is asked for, in milliseconds, as in the HTTP API.
const leastRetry = 1000
