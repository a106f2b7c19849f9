package wire

import (
	"time"

	"twotier.dev/twotier/internal/request"
)

// Kind holds the common properties of all problems of a kind.
type Kind struct {
	// Status is the status code of the response.
	Status int

	name, title string
	retryAfter  int // seconds; 0: the same request would fail again
}

// The kinds of problem, in the order of their status.
var (
	Malformed            = Kind{400, "malformed", "Malformed request", 0}
	Unauthorized         = Kind{401, "unauthorized", "Not authorized", 0}
	Forbidden            = Kind{403, "forbidden", "Forbidden", 0}
	NotFound             = Kind{404, "not-found", "No such resource", 0}
	Method               = Kind{405, "method", "Method not allowed", 0}
	Timeout              = Kind{408, "request-timeout", "Request took too long to arrive", 0}
	Sequence             = Kind{409, "sequence", "Not the next request of its session", 0}
	Gone                 = Kind{410, "gone", "Ended before", 0}
	Precondition         = Kind{412, "precondition", "Changed in the meantime", 0}
	TooLarge             = Kind{413, "too-large", "Request body too large", 0}
	MediaType            = Kind{415, "media-type", "Unsupported media type", 0}
	Misdirected          = Kind{421, "misdirected", "Meant for another process", 0}
	Refused              = Kind{422, "refused", "Request refused", 0}
	PreconditionRequired = Kind{428, "precondition-required", "Precondition required", 0}
	Overload             = Kind{429, "overload", "Node overloaded", 1}
	Headers              = Kind{431, "headers-too-large", "Request header too large", 0}
	Internal             = Kind{500, "internal", "Internal error", 0}
	Unavailable          = Kind{503, "unavailable", "Can't answer now", 1}
	Unknown              = Kind{503, "unknown-outcome", "Outcome unknown", 1}
)

// Problem is an error as the client sees it (RFC 9457).
type Problem struct {
	Kind Kind
	// Field is the path of the offending field, empty if the problem is not about a field.
	Field string
	// Detail is a sentence for people.
	Detail string
	// After is an estimate of how long the cause may last; 0 if there is none.
	After time.Duration
	// Allow is the value of the Allow header of a 405.
	Allow string
}

// FieldProblem returns the problem of a field whose value is well-formed but not acceptable.
func FieldProblem(field, detail string) *Problem {
	return &Problem{Kind: Refused, Field: field, Detail: detail}
}

// IsOfField reports whether p is about a field in valid JSON, and so does not affect the other
// operations of a batch.
func (p *Problem) IsOfField() bool { return p.Kind == Refused || p.Kind == Forbidden }

// PrefixField prefixes the field of p with parent, a name or an index in brackets, and returns p.
// Problems that are not about a field stay as they are.
func (p *Problem) PrefixField(parent string) *Problem {
	if !p.IsOfField() {
		return p
	}
	if p.Field != "" && p.Field[0] != '[' {
		parent += "."
	}
	p.Field = parent + p.Field
	return p
}

// Text returns the detail member: the field and its problem.
func (p *Problem) Text() string {
	if p.Field == "" {
		return p.Detail
	}
	return p.Field + ": " + p.Detail
}

// AppendJSON appends p as a problem object.
func (p *Problem) AppendJSON(b []byte) []byte {
	b = append(append(b, `{"type":"urn:twotier:problem:`...), p.Kind.name...)
	b = append(append(b, `","title":"`...), p.Kind.title...)
	b = AppendField(append(b, '"'), "status", int64(p.Kind.Status))
	b = AppendString(append(b, `,"detail":`...), p.Text())
	if p.Kind == Unknown {
		b = append(b, `,"outcome":"unknown"`...)
	}
	if p.After > 0 {
		b = AppendField(b, "retry_after_ms", p.After.Milliseconds())
	}
	return append(b, '}')
}

// RetryAfter returns the value of the Retry-After header, in seconds: the estimate rounded up, or
// the kind's value if that is longer. 0 means no header.
func (p *Problem) RetryAfter() int {
	return max(p.Kind.retryAfter, int((p.After+time.Second-1)/time.Second))
}

// failureKinds are the kinds of problem in the order of [request.Kind].
var failureKinds = [...]Kind{Refused, Overload, Unavailable, Unknown,
	Internal, Forbidden, NotFound, Gone}

// FromFailure turns a failure into a problem; nil is none.
func FromFailure(f *request.Failure) *Problem {
	if f == nil {
		return nil
	}
	return &Problem{Kind: failureKinds[f.Kind], Field: f.Field, Detail: f.Detail, After: f.After}
}
