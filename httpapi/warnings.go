package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/warning"
)

// Warnings holds the probable mistakes in a node's configuration.
type Warnings interface {
	// List returns all warnings, and Of the warnings of one source: settings or rules.
	List() []warning.Warning
	Of(source string) []warning.Warning
	// Observe records a warning triggered by a request.
	Observe(code warning.Code, at string)
}

// headerWarnings is the header with the number of warnings.
const headerWarnings = "Twotier-Warnings"

// setWarnings sets the header with the number of warnings, if there are any.
func (s *Server) setWarnings(ctx *fasthttp.RequestCtx) {
	if s.opts.Warnings == nil {
		return
	}
	if n := len(s.opts.Warnings.List()); n > 0 {
		ctx.Response.Header.Set(headerWarnings, strconv.Itoa(n))
	}
}

// showWarnings answers with the warnings of this node, and the version of the rules that they are
// about: 0 until one is known.
func (s *Server) showWarnings(ctx *fasthttp.RequestCtx, v twotier.RuleVersion) *wire.Problem {
	var list []warning.Warning
	if s.opts.Warnings != nil {
		list = s.opts.Warnings.List()
	}
	b := strconv.AppendInt([]byte(`{"version":`), v.Number, 10)
	return sendJSON(ctx, append(appendWarnings(b, list), '}'))
}

// appendRuleWarnings adds the warnings about the rules in force, if there are any, to an object.
func (s *Server) appendRuleWarnings(b []byte) []byte {
	if s.opts.Warnings == nil {
		return b
	}
	if list := s.opts.Warnings.Of(warning.Rules); len(list) > 0 {
		b = append(appendWarnings(b[:len(b)-1], list), '}')
	}
	return b
}

// appendWarnings appends a field with warnings.
func appendWarnings(b []byte, list []warning.Warning) []byte {
	b = append(b, `,"warnings":[`...)
	for i, w := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(append(b, `{"code":`...), w.Code)
		b = wire.AppendString(append(b, `,"at":`...), w.At)
		b = wire.AppendString(append(b, `,"reason":`...), w.Reason)
		b = wire.AppendString(append(b, `,"instead":`...), w.Instead)
		b = append(b, '}')
	}
	return append(b, ']')
}
