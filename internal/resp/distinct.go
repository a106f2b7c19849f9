package resp

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// Distincter counts distinct values. A [Service] may implement it; otherwise there is no
// TT.DISTINCT.
type Distincter interface {
	// Distinct adds values to a key and counts its distinct values. Without values it only counts.
	Distinct(ctx context.Context, op *distinct.Op, values [][]byte, res *distinct.Result) error
}

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
	start := len(w.limits)
	defer func() { w.limits = w.limits[:start] }()
	q.draft = draft{w: w, args: args[1:], start: start}
	if e := q.draft.key(); e != "" {
		return e
	}
	for len(q.draft.args) > 0 {
		if e := q.next(); e != "" {
			return e
		}
	}
	op := &q.op.Op
	op.NS, op.Key = q.draft.check.NS, q.draft.check.Key
	op.Limits = slices.Clone(w.limits[start:])
	q.asked = len(op.Limits)+len(w.naming) > 0
	if e := q.complete(); e != "" {
		return e
	}
	return q.judges()
}

// next reads one option and its value.
func (q *distinctQuery) next() errorReply {
	option := bytes.ToUpper(q.draft.args[0][:min(len(q.draft.args[0]), 8)])
	if len(q.draft.args) < 2 {
		return refused(clip(q.draft.args[0]), "its value is missing")
	}
	value := q.draft.args[1]
	switch q.draft.args = q.draft.args[1:]; string(option) {
	case "LIMIT":
		return q.draft.limit()
	case "RULE":
		return q.draft.rule()
	}
	switch q.draft.args = q.draft.args[1:]; string(option) {
	case "NS":
		if q.draft.check.NS != nil {
			return refused("ns", givenTwice)
		}
		if q.draft.check.NS = value; !request.ValidNS(value) {
			return refused("ns", request.WantNS)
		}
	case "TS":
		ts, ok := integer(value)
		if q.op.Op.TS != 0 {
			return refused("ts", givenTwice)
		}
		if q.op.Op.TS = ts; !ok || ts < 1 {
			return refused("ts", "want unix milliseconds, at least 1")
		}
	case "VALUES":
		n, ok := integer(value)
		if q.op.Add != nil {
			return refused("values", givenTwice)
		}
		if !ok || n < 1 || n > distinct.MaxValues || n > int64(len(q.draft.args)) {
			return refused("values", fmt.Sprintf("want their number, 1 to %d, and so many "+
				"values", distinct.MaxValues))
		}
		q.op.Add, q.draft.args = q.draft.args[:n], q.draft.args[n:]
	case "WINDOW":
		rest := q.draft.args
		q.draft.args = nil
		return q.windows(value, rest)
	default:
		return refused(clip(option), "unknown option; want NS, TS, VALUES, LIMIT, RULE or WINDOW")
	}
	return ""
}

// windows reads the windows, which come last.
func (q *distinctQuery) windows(first []byte, rest [][]byte) errorReply {
	if len(rest) >= request.MaxWindows {
		return refused("window", fmt.Sprintf("want at most %d windows", request.MaxWindows))
	}
	for _, text := range append([][]byte{first}, rest...) {
		ms, wrong := request.ParseWindow(text)
		if wrong != "" {
			return refused("window", wrong+`, got "`+clip(text)+`"`)
		}
		q.op.Op.Windows = append(q.op.Op.Windows, ms)
	}
	return ""
}

// complete refuses commands that have nothing to do, and values that are too long.
func (q *distinctQuery) complete() errorReply {
	switch {
	case len(q.op.Add) == 0 && q.asked:
		return refused("values", "missing; limits and rules judge what is added")
	case len(q.op.Add)+len(q.op.Op.Windows) == 0:
		return refused("values", "missing; want VALUES, WINDOW or both")
	}
	for i, v := range q.op.Add {
		if len(v) == 0 || len(v) > distinct.MaxValueBytes {
			return refused(fmt.Sprintf("values[%d]", i), fmt.Sprintf("want 1 to %d bytes",
				distinct.MaxValueBytes))
		}
	}
	return ""
}

// judges adds the limits of the rules that the command names. A command that adds values at the
// current time and names neither rules nor limits gets the default rules of its namespace.
func (q *distinctQuery) judges() errorReply {
	w := q.draft.w
	if q.op.WantsDefaults(w.naming) {
		if e := q.draft.takeRules(); e != "" {
			return e
		}
		w.naming = append(w.naming, q.draft.inForce.DistinctDefaults(q.op.Op.NS)...)
	}
	if len(w.naming) == 0 {
		return ""
	}
	if wrong := q.op.Judge(w.naming, q.draft.inForce.Version()); wrong != nil {
		return refused(wrong.Field, wrong.Detail)
	}
	return ""
}

// distinct executes TT.DISTINCT, see distinctQuery.parse.
func (c *conn) distinct(args [][]byte) errorReply {
	service, ok := c.server.opts.Service.(Distincter)
	if !ok {
		return errorf(codeErr, "this node does not count distinct values")
	}
	var q distinctQuery
	if e := q.parse(c.work, args); e != "" {
		return e
	}
	need := twotier.RoleRead
	if len(q.op.Add) > 0 {
		need = twotier.RoleCount
	}
	if _, why := c.session.grant.Refusal(need, q.op.Op.NS); why != "" {
		return errorf(codeNoPerm, "%s", why)
	}
	var res distinct.Result
	if err := service.Distinct(c.deadline(), &q.op.Op, q.op.Add, &res); err != nil {
		return c.server.errorOf(err, request.FailureOf(err, len(q.op.Add) > 0))
	}
	c.countDistinct(&q, &res)
	if !res.Allowed && !q.asked && len(q.op.Add) > 0 {
		return q.refusal(&res)
	}
	c.work.out = q.append(c.work.out, &res)
	return ""
}

// append appends an integer for each window. If the command has limits, they are preceded by
// whether the limits allowed it, when to try again, and two integers for each limit.
func (q *distinctQuery) append(b []byte, res *distinct.Result) []byte {
	limits := min(len(q.op.Op.Limits), len(res.Counts))
	judged, counted := res.Counts[:limits], res.Counts[limits:]
	if q.asked {
		b = appendInt(appendArray(b, 2+2*len(judged)+len(counted)), truth(res.Allowed))
		b = appendInt(b, res.RetryAfter)
		for i, c := range judged {
			b = appendInt(appendInt(b, c.Values), max(0, q.op.Op.Limits[i].Max-c.Values))
		}
	} else {
		b = appendArray(b, len(counted))
	}
	for _, c := range counted {
		b = appendInt(b, c.Values)
	}
	return b
}

// refusal returns the error for default rules that refuse a command whose answer has no field for a
// verdict.
func (q *distinctQuery) refusal(res *distinct.Result) errorReply {
	return errorf(codeRefused, "by %s; nothing was added; retry_after_ms=%d",
		strings.Join(q.op.RefusedBy(res), ", "), res.RetryAfter)
}

// countDistinct counts the verdict of limits on values.
func (c *conn) countDistinct(q *distinctQuery, res *distinct.Result) {
	counters, recorder := c.server.opts.Verdicts, c.server.opts.Decisions
	if counters == nil && recorder == nil || len(q.op.Op.Limits) == 0 {
		return
	}
	run := verdicts.Begin(counters, verdicts.RESP)
	run.RecordTo(recorder)
	run.Values(&q.op, res)
	run.End(time.Since(c.now))
}
