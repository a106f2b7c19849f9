package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
)

// RuleBook keeps the document of rules. Its methods return the errors of [Service] and the ones
// that they name.
type RuleBook interface {
	// Current returns the version in force on this node, and the time at which the store last
	// confirmed it as the newest. known is false until the node has learned one.
	Current() (v twotier.RuleVersion, confirmed time.Time, known bool)
	// Version returns a version, or [twotier.ErrNoRuleVersion].
	Version(ctx context.Context, number int64) (twotier.RuleVersion, error)
	// History returns the versions that are kept, the newest first.
	History(ctx context.Context) ([]twotier.RuleVersion, error)
	// Put stores text as the version after base, or after the newest one if base is negative. The
	// error is a *[twotier.DocumentError] if the text is not a document of rules, and
	// [twotier.ErrRulesMoved] if base is not the newest version.
	Put(ctx context.Context, base int64, text []byte, who string) (twotier.RuleVersion, error)
	// Read parses a document without changing anything; an empty document has no rules. The error
	// is a *[twotier.DocumentError] if there is a mistake.
	Read(text []byte) (*twotier.RuleSet, error)
	// JSON returns a document as JSON.
	JSON(text []byte) ([]byte, error)
	// Limits returns the limits of the named rules of a document as a JSON list.
	Limits(text []byte) ([]byte, error)
}

// showRules answers with the rules in force, another version of them, their limits, the history, or
// the warnings.
func (s *Server) showRules(ctx *fasthttp.RequestCtx) *wire.Problem {
	number, part, p := parseRulesQuery(ctx)
	if p != nil {
		return p
	}
	wait, cancel := context.WithTimeout(context.Background(), s.opts.RequestTimeout)
	defer cancel()
	if part == "history" || number > 0 { // all versions, read in two forms, take as much as one
		if p := memoryOf(ctx).ReserveDocument(twotier.MaxRuleText); p != nil {
			return p
		}
	}
	switch {
	case part == "history":
		return s.showHistory(wait, ctx)
	case number > 0:
		v, err := s.opts.RuleBook.Version(wait, number)
		if err != nil {
			return s.problemOfRules(err, false)
		}
		return s.showVersionPart(ctx, v, part)
	}
	v, confirmed, known := s.opts.RuleBook.Current()
	if part == "warnings" {
		return s.showWarnings(ctx, v)
	}
	if !known {
		return wire.FromFailure(request.RulesUnknownFailure())
	}
	if p := memoryOf(ctx).ReserveDocument(len(v.Text)); p != nil {
		return p
	}
	s.setWarnings(ctx)
	ctx.Response.Header.Set("Age", strconv.Itoa(int(time.Since(confirmed)/time.Second)))
	return s.showVersionPart(ctx, v, part)
}

// showVersionPart answers with a document, or with the limits in it.
func (s *Server) showVersionPart(ctx *fasthttp.RequestCtx, v twotier.RuleVersion,
	part string) *wire.Problem {
	if part == "" {
		return s.showVersion(ctx, v)
	}
	limits, err := s.opts.RuleBook.Limits(v.Text)
	if err != nil {
		return s.problemOfRules(err, false)
	}
	setVersion(ctx, v)
	b := strconv.AppendInt([]byte(`{"version":`), v.Number, 10)
	b = append(append(b, `,"limits":`...), limits...)
	return sendJSON(ctx, append(b, '}'))
}

// showVersion answers with a document, as JSON unless the request prefers YAML.
func (s *Server) showVersion(ctx *fasthttp.RequestCtx, v twotier.RuleVersion) *wire.Problem {
	setVersion(ctx, v)
	if prefersYAML(ctx.Request.Header.Peek(fasthttp.HeaderAccept)) {
		ctx.SetContentType("application/yaml")
		ctx.Response.SetBody(v.Text)
		return nil
	}
	text, err := s.opts.RuleBook.JSON(v.Text)
	if err != nil {
		return wire.FieldProblem("Accept", "want application/yaml: "+err.Error())
	}
	return sendJSON(ctx, text)
}

// setVersion sets the headers that identify the version of a document.
func setVersion(ctx *fasthttp.RequestCtx, v twotier.RuleVersion) {
	ctx.Response.Header.Set("ETag", `"`+strconv.FormatInt(v.Number, 10)+`"`)
	ctx.Response.Header.Set("Vary", "Accept")
	if v.Number > 0 {
		ctx.Response.Header.SetLastModified(v.At)
	}
}

// prefersYAML reports whether an Accept header names YAML, and does so before any JSON.
func prefersYAML(accept []byte) bool {
	yaml, json := bytes.Index(accept, []byte("yaml")), bytes.Index(accept, []byte("json"))
	return yaml >= 0 && (json < 0 || yaml < json)
}

// showHistory answers with the author and the time of each version.
func (s *Server) showHistory(wait context.Context, ctx *fasthttp.RequestCtx) *wire.Problem {
	all, err := s.opts.RuleBook.History(wait)
	if err != nil {
		return s.problemOfRules(err, false)
	}
	b := []byte(`{"versions":[`)
	for _, v := range all {
		b = appendVersion(wire.AppendComma(b), v)
	}
	return sendJSON(ctx, append(b, "]}"...))
}

func appendVersion(b []byte, v twotier.RuleVersion) []byte {
	b = strconv.AppendInt(append(b, `{"version":`...), v.Number, 10)
	b = wire.AppendString(append(b, `,"who":`...), v.Who)
	b = wire.AppendField(b, "at", v.At.UnixMilli())
	return append(wire.AppendField(b, "bytes", int64(len(v.Text))), '}')
}

// putRules makes a document the next version.
func (s *Server) putRules(ctx *fasthttp.RequestCtx) *wire.Problem {
	g := grantOf(ctx)
	base, p := baseOf(ctx.Request.Header.Peek(fasthttp.HeaderIfMatch))
	if p != nil {
		return p
	}
	if p := memoryOf(ctx).ReserveDocument(len(ctx.PostBody())); p != nil {
		return p
	}
	wait, cancel := context.WithTimeout(context.Background(), s.opts.RequestTimeout)
	defer cancel()
	v, err := s.opts.RuleBook.Put(wait, base, ctx.PostBody(), g.Name())
	if err != nil {
		return s.problemOfRules(err, true)
	}
	setVersion(ctx, v)
	return sendJSON(ctx, s.appendRuleWarnings(appendVersion(nil, v)))
}

// baseOf reads If-Match: the version that a document was made from, negative for any.
func baseOf(match []byte) (base int64, p *wire.Problem) {
	const want = `want the version that the document was made from in quotes, as ETag has it, ` +
		`or * to replace whichever is in force`
	switch {
	case len(match) == 0:
		return 0, &wire.Problem{Kind: wire.PreconditionRequired, Field: fasthttp.HeaderIfMatch,
			Detail: "missing; " + want}
	case string(match) == "*":
		return -1, nil
	}
	digits, quoted := bytes.CutPrefix(match, []byte{'"'})
	digits, closed := bytes.CutSuffix(digits, []byte{'"'})
	base, ok := request.ParseNumber(digits)
	if !quoted || !closed || !ok {
		return 0, wire.FieldProblem(fasthttp.HeaderIfMatch, want)
	}
	return base, nil
}

// problemOfRules turns an error of the rule book into a problem.
func (s *Server) problemOfRules(err error, write bool) *wire.Problem {
	var bad *twotier.DocumentError
	switch {
	case errors.As(err, &bad):
		return wire.FieldProblem("", bad.Error())
	case errors.Is(err, twotier.ErrRulesMoved):
		newest := ""
		if v, _, known := s.opts.RuleBook.Current(); known {
			newest = fmt.Sprintf("; version %d is in force", v.Number)
		}
		return &wire.Problem{Kind: wire.Precondition, Field: fasthttp.HeaderIfMatch,
			Detail: "not the newest version" + newest + ", and nothing has changed"}
	case errors.Is(err, twotier.ErrNoRuleVersion):
		return &wire.Problem{Kind: wire.NotFound, Detail: fmt.Sprintf(
			"no such version is kept, of which there are at most %d", twotier.MaxRuleVersions)}
	}
	return s.problemOf(err, write)
}
