package resp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// givenTwice is the error detail of an option given more than once.
const givenTwice = "given twice"

// distinctQuery holds the arguments of TT.DISTINCT.
type distinctQuery struct {
	draft draft // of the key, the namespace, limits and rules
	op    verdicts.Values
	// asked is set if the command has LIMIT or RULE, and its answer therefore carries their
	// verdict.
	asked bool
}

// parse reads key [NS ns] [TS ms] [VALUES n v...] [LIMIT window max | RULE name]... [WINDOW w...].
func (q *distinctQuery) parse(w *work, args [][]byte) errorReply {
	q.draft = w.beginOp(args)
	defer w.DropOp()
	if e := q.draft.readKey(); e != "" {
		return e
	}
	for len(q.draft.args) > 0 {
		if e := q.readOption(); e != "" {
			return e
		}
	}
	op := &q.op.Op
	op.NS, op.Key, op.TS = q.draft.check.NS, q.draft.check.Key, q.draft.op.TS
	op.Limits, _ = w.MoveLimits()
	q.asked = len(op.Limits) > 0 || w.NamesRules()
	if e := q.validate(); e != "" {
		return e
	}
	if f := w.AddValueRuleLimits(&q.op); f != nil {
		return errorOfFailure(f)
	}
	return ""
}

// readOption reads one option and its value.
func (q *distinctQuery) readOption() errorReply {
	option := bytes.ToUpper(q.draft.args[0][:min(len(q.draft.args[0]), 8)])
	if len(q.draft.args) < 2 {
		return fieldError(request.Clip(q.draft.args[0]), "its value is missing")
	}
	value := q.draft.args[1]
	q.draft.args = q.draft.args[1:]
	switch o := optionOf(option); o {
	case fields.Limits, fields.Rules, fields.NS, fields.TS:
		return q.draft.readOption(o)
	}
	switch q.draft.args = q.draft.args[1:]; string(option) {
	case "VALUES":
		if q.op.Add != nil {
			return fieldError("values", givenTwice)
		}
		var e errorReply
		q.op.Add, e = q.draft.readValues(value)
		return e
	case "WINDOW":
		rest := q.draft.args
		q.draft.args = nil
		return q.readWindows(value, rest)
	default:
		return fieldError(request.Clip(option),
			"unknown option; want NS, TS, VALUES, LIMIT, RULE or WINDOW")
	}
}

// readValues reads so many values.
func (d *draft) readValues(count []byte) ([][]byte, errorReply) {
	n, ok := parseInteger(count)
	if !ok || n < 1 || n > distinct.MaxValues || n > int64(len(d.args)) {
		return nil, d.fieldError("values", fmt.Sprintf("want their number, 1 to %d, and so many "+
			"values", distinct.MaxValues))
	}
	values := slices.Clone(d.args[:n]) // the next command has the list of arguments
	d.args = d.args[n:]
	for i, v := range values {
		if len(v) == 0 || len(v) > distinct.MaxValueBytes {
			return nil, d.fieldError(fmt.Sprintf("values[%d]", i), fmt.Sprintf(
				"want 1 to %d bytes", distinct.MaxValueBytes))
		}
	}
	return values, ""
}

// readValueLimit reads a window and the maximum of different values in it.
func (d *draft) readValueLimit() errorReply {
	path := fmt.Sprintf("value_limits[%d].", len(d.w.ValuesInProgress().Op.Limits))
	if len(d.args) < 2 {
		return d.fieldError(path+"window", "want VLIMIT, a window and a maximum")
	}
	ms, wrong := request.ParseWindow(d.args[0])
	if wrong != "" {
		return d.fieldError(path+"window", wrong)
	}
	most, ok := parseInteger(d.args[1])
	if !ok || !fields.Max.Allows(most) {
		return d.fieldError(path+"max", fields.Max.Want())
	}
	d.args = d.args[2:]
	d.w.LimitValues(twotier.Limit{Window: ms, Max: most}, nil)
	return ""
}

// readWindows reads the windows, which come last.
func (q *distinctQuery) readWindows(first []byte, rest [][]byte) errorReply {
	if len(rest) >= request.MaxWindows {
		return fieldError("window", fmt.Sprintf("want at most %d windows", request.MaxWindows))
	}
	for _, text := range append([][]byte{first}, rest...) {
		ms, wrong := request.ParseWindow(text)
		if wrong != "" {
			return fieldError("window", wrong)
		}
		q.op.Op.Windows = append(q.op.Op.Windows, ms)
	}
	return ""
}

// validate refuses commands that have nothing to do.
func (q *distinctQuery) validate() errorReply {
	switch {
	case len(q.op.Add) == 0 && q.asked:
		return fieldError("values", "missing; limits and rules judge what is added")
	case len(q.op.Add)+len(q.op.Op.Windows) == 0:
		return fieldError("values", "missing; want VALUES, WINDOW or both")
	}
	return ""
}

// parseDistinct reads TT.DISTINCT, see distinctQuery.parse, and returns the service that executes
// it.
func (c *conn) parseDistinct(q *distinctQuery, args [][]byte) (ask.Distincter, errorReply) {
	service, ok := c.server.opts.Service.(ask.Distincter)
	if !ok {
		return nil, errorf(codeErr, "this node does not count distinct values")
	}
	if e := q.parse(c.work, args); e != "" {
		return nil, e
	}
	need := twotier.RoleRead
	if len(q.op.Add) > 0 {
		need = twotier.RoleCount
	}
	if f := ask.CheckGrant(c.session.grant, need, q.op.Op.NS); f != nil {
		return nil, errorOfFailure(f)
	}
	return service, ""
}

// executeDistinct executes TT.DISTINCT.
func (c *conn) executeDistinct(args [][]byte) errorReply {
	var q distinctQuery
	service, e := c.parseDistinct(&q, args)
	if e != "" {
		return e
	}
	var res distinct.Result
	if err := service.Distinct(c.executionContext(), &q.op.Op, q.op.Add, &res); err != nil {
		return c.server.errorOf(err, request.FailureOf(err, len(q.op.Add) > 0))
	}
	c.server.verdicts.CountValues(c.arrival(), &q.op, &res)
	if !res.Allowed && !q.asked && len(q.op.Add) > 0 {
		return q.refusal(&res)
	}
	c.work.out = q.appendAnswer(c.work.out, &res)
	return ""
}

// appendAnswer appends an integer for each window. If the command has limits, they are preceded by
// whether the limits allowed it, when to try again, and two integers for each limit.
func (q *distinctQuery) appendAnswer(b []byte, res *distinct.Result) []byte {
	limits := min(len(q.op.Op.Limits), len(res.Counts))
	judged, counted := res.Counts[:limits], res.Counts[limits:]
	if q.asked {
		b = appendInt(appendArray(b, 2+2*len(judged)+len(counted)), boolInt(res.Allowed))
		b = appendInt(b, res.RetryAfter)
		for i, c := range judged {
			b = appendInt(appendInt(b, c.Count), max(0, q.op.Op.Limits[i].Max-c.Count))
		}
	} else {
		b = appendArray(b, len(counted))
	}
	for _, c := range counted {
		b = appendInt(b, c.Count)
	}
	return b
}

// refusal returns the error for default rules that refuse a command whose answer has no field for a
// verdict.
func (q *distinctQuery) refusal(res *distinct.Result) errorReply {
	return errorf(codeRefused, "by %s; nothing was added; retry_after_ms=%d",
		strings.Join(q.op.RefusedBy(res, "limits"), ", "), res.RetryAfter)
}
