package resp

import (
	"strconv"
	"strings"

	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// parseExplain reads TT.EXPLAIN key [NS ns] [RULE rule], or TT.EXPLAIN ID id.
func parseExplain(args [][]byte) (*explain.Query, errorReply) {
	q := &explain.Query{Key: args[1]}
	if len(args) == 3 && strings.EqualFold(string(args[1]), "ID") {
		return &explain.Query{ID: string(args[2])}, ""
	}
	if !request.ValidKey(q.Key) {
		return nil, fieldError("key", request.WantKey)
	}
	for args = args[2:]; len(args) > 0; args = args[2:] {
		option := optionOf(args[0])
		switch {
		case option != fields.NS && option != fields.Rules:
			return nil, fieldError(request.Clip(args[0]),
				"unknown option; want NS and a namespace, or RULE and a name")
		case len(args) < 2:
			return nil, fieldError(request.Clip(args[0]), "its value is missing")
		case option == fields.Rules && q.Rule == "":
			q.Rule = string(args[1])
		case option == fields.NS && !request.ReadableNS(args[1]):
			return nil, fieldError("ns", request.WantNS)
		case option == fields.NS && q.NS == nil:
			q.NS = args[1]
		default:
			return nil, fieldError(request.Clip(args[0]), givenTwice)
		}
	}
	return q, ""
}

// executeExplain executes TT.EXPLAIN. The reply is the JSON of GET /v1/explain.
func (c *conn) executeExplain(args [][]byte) errorReply {
	q, e := parseExplain(args)
	if e != "" {
		return e
	}
	explainer, ok := c.server.explainer()
	if !ok {
		return errorf(codeErr, "this node has no explanations")
	}
	q.Grant = c.session.grant
	ctx := c.executionContext()
	plan, f := explainer.Plan(ctx, q)
	if f != nil {
		return errorOfFailure(f)
	}
	n, ok := c.reserveAnswer(plan.Bytes())
	if !ok {
		return errNoMemory
	}
	defer c.releaseAnswer(n)
	text, f := plan.Append(ctx, nil, c.server.conns.Accounts[answers].Most)
	if f != nil {
		return errorOfFailure(f)
	}
	c.writeBulk(text)
	return ""
}

// writeBulk writes the earlier answers and then a text, which it does not copy.
func (c *conn) writeBulk(text []byte) {
	w := c.work
	w.out = strconv.AppendInt(append(w.out, '$'), int64(len(text)), 10)
	w.out = append(w.out, "\r\n"...)
	c.writeAnswers()
	kept := w.out
	w.out = append(text, "\r\n"...)
	c.writeAnswers()
	w.out = kept
}

// explainer returns what explains refusals, if the service can find them.
func (s *Server) explainer() (e explain.Explainer, ok bool) {
	e = explain.Explainer{Service: s.opts.Service, Rules: s.opts.Rules}
	e.Refusals, ok = s.opts.Service.(explain.Refusals)
	return e, ok
}
