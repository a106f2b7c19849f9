package resp

import (
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// query holds the arguments of a command about one key.
type query struct {
	ns, key []byte
	window  int64 // of TT.SERIES
}

// parseQuery reads key [NS ns] of a command that needs a role, and a window behind the key if
// windowed.
func (c *conn) parseQuery(args [][]byte, windowed bool, need twotier.Role) (q query,
	e errorReply) {
	if q.key = args[1]; !request.ValidKey(q.key) {
		return q, fieldError("key", request.WantKey)
	}
	args = args[2:]
	if windowed {
		ms, wrong := request.ParseWindow(args[0])
		if wrong != "" {
			return q, fieldError("window", wrong)
		}
		q.window, args = ms, args[1:]
	}
	switch {
	case len(args) == 0:
	case len(args) != 2 || optionOf(args[0]) != fields.NS:
		return q, fieldError(request.Clip(args[0]), "unknown option; want NS and a namespace")
	case !request.ValidNS(args[1]) && (!windowed || !request.ReadableNS(args[1])):
		return q, fieldError("ns", request.WantNS)
	default:
		q.ns = args[1]
	}
	if f := ask.CheckGrant(c.session.grant, need, q.ns); f != nil {
		return q, errorOfFailure(f)
	}
	return q, ""
}

// executeSeries executes TT.SERIES key window [NS ns].
func (c *conn) executeSeries(args [][]byte) errorReply {
	q, e := c.parseQuery(args, true, twotier.RoleRead)
	if e != "" {
		return e
	}
	_, points, err := c.server.opts.Service.Series(c.executionContext(), q.ns, q.key, q.window)
	if err != nil {
		return c.server.errorOf(err, request.FailureOfQuery(err))
	}
	c.work.out = appendArray(c.work.out, len(points))
	for i := range points {
		b := appendArray(c.work.out, 2)
		b = appendInt(b, points[i].Start)
		c.work.out = appendInt(b, points[i].Count)
		c.writeIfFull()
	}
	return ""
}

// topQuery holds the arguments of TT.TOP.
type topQuery struct {
	n, window int64
	by        string // see request.ValidTopOrder
}

// parseTop reads TT.TOP [n] [WINDOW w] [BY refused|shadow|concurrent].
func (c *conn) parseTop(args [][]byte) (q topQuery, e errorReply) {
	q.n = request.DefaultTop
	args = args[1:]
	if len(args)%2 == 1 {
		v, ok := parseInteger(args[0])
		if q.n = v; !ok || v < 1 || v > request.MaxTop {
			return q, fieldError("n", "want 1 to 1000")
		}
		args = args[1:]
	}
	for ; len(args) > 0; args = args[2:] {
		switch optionOf(args[0]) {
		case fields.Window:
			ms, wrong := request.ParseWindow(args[1])
			if q.window = ms; wrong != "" {
				return q, fieldError("window", wrong)
			}
		case fields.By:
			if q.by = string(args[1]); !request.ValidTopOrder(q.by) {
				return q, fieldError("by", request.WantBy+`, got "`+request.Clip(args[1])+`"`)
			}
		default:
			return q, fieldError(request.Clip(args[0]),
				"unknown option; want WINDOW and a duration, or BY and an order")
		}
	}
	switch {
	case q.by == request.ByConcurrent && q.window != 0:
		return q, fieldError("window", request.WantNoTopWindow)
	case q.window == 0:
		q.window = request.DefaultTopMS
	}
	f := ask.CheckGrantAll(c.session.grant)
	if f == nil {
		f = ask.CheckGrant(c.session.grant, twotier.RoleRead, nil)
	}
	if f != nil {
		return q, errorOfFailure(f)
	}
	return q, ""
}

// keyCost is how many bytes of memory a key in a list takes: its name, once for each node that may
// report it, and its part of the answer.
const keyCost = 2 << 10

// executeTop executes TT.TOP.
func (c *conn) executeTop(args [][]byte) errorReply {
	q, e := c.parseTop(args)
	if e != "" {
		return e
	}
	n, ok := c.reserveAnswer(q.n * keyCost)
	if !ok {
		return errNoMemory
	}
	defer c.releaseAnswer(n)
	keys, err := c.server.opts.Service.Top(c.executionContext(), q.by, "", int(q.n),
		q.window)
	if err != nil {
		return c.server.errorOf(err, request.FailureOfQuery(err))
	}
	c.work.out = appendArray(c.work.out, len(keys))
	for i := range keys {
		b := appendArray(c.work.out, 3)
		b = appendBulk(appendBulk(b, keys[i].NS), keys[i].Key)
		c.work.out = appendInt(b, keys[i].Count)
		c.writeIfFull()
	}
	return ""
}

// executeReset executes TT.RESET key [NS ns].
func (c *conn) executeReset(args [][]byte) errorReply {
	q, e := c.parseQuery(args, false, twotier.RoleAdmin)
	if e != "" {
		return e
	}
	if err := c.server.opts.Service.Reset(c.executionContext(), q.ns, q.key); err != nil {
		return c.server.errorOf(err, request.FailureOf(err, true))
	}
	c.appendReply(appendSimple, "OK")
	return ""
}

// parseSettle reads the n of TT.SETTLE id n.
func parseSettle(args [][]byte) (int64, errorReply) {
	n, ok := parseInteger(args[2])
	if !ok {
		return 0, fieldError("n", request.WantAcquireN)
	}
	return n, ""
}

// executeSettle executes TT.SETTLE.
func (c *conn) executeSettle(args [][]byte) errorReply {
	n, e := parseSettle(args)
	if e != "" {
		return e
	}
	return c.settle(args[1], n)
}

// settle makes what a hold has counted n events. The reply is 1, or 2 if the hold had ended, or 0
// if it was settled before, and the names of the limits that are exceeded.
func (c *conn) settle(id []byte, n int64) errorReply {
	c.work.ForgetRules()
	answer, f := c.work.Settle(c.executionContext(), c.server.opts.Service,
		&ask.Settling{ID: string(id), All: n})
	if f != nil {
		return errorOfFailure(f)
	}
	b := appendArray(c.work.out, 1+len(answer.Over))
	b = appendInt(b, outcomeOf(answer))
	for _, name := range answer.Over {
		b = appendBulk(b, name)
	}
	c.work.out = b
	return ""
}

// outcomeOf returns the number that stands for the outcome of a settlement.
func outcomeOf(answer *ask.Settled) int64 {
	switch {
	case answer.Repeated:
		return 0
	case answer.Late:
		return 2
	}
	return 1
}

// parseRenew reads the duration of TT.RENEW id duration, in milliseconds.
func parseRenew(args [][]byte) (int64, errorReply) {
	ms, wrong := request.ParseWindow(args[2])
	if wrong != "" {
		return 0, fieldError("duration", wrong)
	}
	return ms, ""
}

// executeRenew executes TT.RENEW. The reply is the new id and its end.
func (c *conn) executeRenew(args [][]byte) errorReply {
	ms, e := parseRenew(args)
	if e != "" {
		return e
	}
	answer, f := c.work.Renew(c.executionContext(), c.server.opts.Service, string(args[1]), ms)
	if f != nil {
		return errorOfFailure(f)
	}
	b := appendArray(c.work.out, 2)
	c.work.out = appendInt(appendBulk(b, answer.ID), answer.Until)
	return ""
}

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
