package resp

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/httpapi/token"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/syncer"
)

// Distincter counts distinct values. A [Service] may be one; otherwise there is no TT.DISTINCT.
type Distincter interface {
	// Distinct adds values to a key and counts how many different ones there are. Without values it
	// only counts.
	Distinct(ctx context.Context, op *distinct.Op, values [][]byte, res *distinct.Result) error
}

// distinctQuery is the arguments of TT.DISTINCT.
type distinctQuery struct {
	draft   draft // of the key, the namespace, limits and rules
	op      distinct.Op
	values  [][]byte
	origins []verdicts.Origin // parallel to op.Limits
	names   []string          // the same: what rules call their limits
	// asked is set if the command has LIMIT or RULE, and so an answer that says what they decided.
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
	for _, l := range w.limits[start:] {
		q.limited(l, verdicts.Origin{}, "")
	}
	q.asked = len(q.op.Limits)+len(w.naming) > 0
	if e := q.complete(); e != "" {
		return e
	}
	e := q.judges()
	q.op.NS, q.op.Key = q.draft.check.NS, q.draft.check.Key
	return e
}

// next reads one option with what follows it.
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
		if q.draft.check.NS = value; !request.ValidNS(value) {
			return refused("ns", request.WantNS)
		}
	case "TS":
		ts, ok := integer(value)
		if q.op.TS = ts; !ok || ts < 1 {
			return refused("ts", "want unix milliseconds, at least 1")
		}
	case "VALUES":
		n, ok := integer(value)
		if !ok || n < 1 || n > distinct.MaxValues || n > int64(len(q.draft.args)) {
			return refused("values", fmt.Sprintf("want their number, 1 to %d, and so many "+
				"values", distinct.MaxValues))
		}
		q.values, q.draft.args = q.draft.args[:n], q.draft.args[n:]
	case "WINDOW":
		rest := q.draft.args
		q.draft.args = nil
		return q.windows(value, rest)
	default:
		return refused(clip(option), "unknown option; want NS, TS, VALUES, LIMIT, RULE or WINDOW")
	}
	return ""
}

// windows reads the windows, which are last.
func (q *distinctQuery) windows(first []byte, rest [][]byte) errorReply {
	if len(rest) >= request.MaxWindows {
		return refused("window", fmt.Sprintf("want at most %d windows", request.MaxWindows))
	}
	for _, text := range append([][]byte{first}, rest...) {
		ms, wrong := request.ParseWindow(text)
		if wrong != "" {
			return refused("window", wrong+`, got "`+clip(text)+`"`)
		}
		q.op.Windows = append(q.op.Windows, ms)
	}
	return ""
}

// complete refuses what has nothing to do, and values that are too long.
func (q *distinctQuery) complete() errorReply {
	switch {
	case len(q.values) == 0 && q.asked:
		return refused("values", "missing; limits and rules judge what is added")
	case len(q.values)+len(q.op.Windows) == 0:
		return refused("values", "missing; want VALUES, WINDOW or both")
	}
	for i, v := range q.values {
		if len(v) == 0 || len(v) > distinct.MaxValueBytes {
			return refused(fmt.Sprintf("values[%d]", i), fmt.Sprintf("want 1 to %d bytes",
				distinct.MaxValueBytes))
		}
	}
	return ""
}

// judges adds the limits of the rules that the command names, or of the default rules of its
// namespace if it adds values now and names neither rules nor limits.
func (q *distinctQuery) judges() errorReply {
	if !q.asked && len(q.values) > 0 && q.op.TS == 0 {
		if e := q.draft.takeRules(); e != "" {
			return e
		}
		q.draft.w.naming = append(q.draft.w.naming,
			q.draft.inForce.DistinctDefaults(q.draft.check.NS)...)
	}
	if len(q.draft.w.naming) > 0 && q.op.TS != 0 { // also where all of them are off
		return refused("ts", distinct.WantNoTS)
	}
	if e := q.draft.space(); e != "" {
		return e
	}
	for _, r := range q.draft.w.naming {
		switch {
		case len(r.Distinct) == 0:
			return refused("rules", request.OnlyEvents(r.Name))
		case r.State == rule.Off:
			continue
		}
		limits := r.DistinctFor(q.draft.check.Key)
		if len(q.op.Limits)+len(limits) > distinct.MaxLimits {
			return refused("rules", fmt.Sprintf("with them there are more than %d limits",
				distinct.MaxLimits))
		}
		for i, l := range limits {
			if r.State == rule.Shadow {
				q.op.Shadow = append(q.op.Shadow, len(q.op.Limits))
			}
			q.limited(syncer.Limit{Window: l.Window, Max: l.Max}, verdicts.Origin{Rule: r,
				Max: l.Max, First: i == 0, Version: q.draft.inForce.Version()},
				r.PolicyName(limits, i))
		}
	}
	return ""
}

// limited adds a limit.
func (q *distinctQuery) limited(l syncer.Limit, from verdicts.Origin, name string) {
	q.op.Limits, q.origins = append(q.op.Limits, l), append(q.origins, from)
	q.names = append(q.names, name)
}

// distinct is TT.DISTINCT, see distinctQuery.parse.
func (c *conn) distinct(args [][]byte) errorReply {
	service, ok := c.server.opts.Service.(Distincter)
	if !ok {
		return errorf(codeErr, "this node does not count distinct values")
	}
	var q distinctQuery
	if e := q.parse(c.work, args); e != "" {
		return e
	}
	need := token.Read
	if len(q.values) > 0 {
		need = token.Count
	}
	if _, why := c.session.grant.Refusal(need, q.op.NS); why != "" {
		return errorf(codeNoPerm, "%s", why)
	}
	var res distinct.Result
	if err := service.Distinct(c.deadline(), &q.op, q.values, &res); err != nil {
		return c.server.errorOf(err, request.FailureOf(err, len(q.values) > 0))
	}
	c.countDistinct(&q, &res)
	if !res.Allowed && !q.asked && len(q.values) > 0 {
		return q.refusal(&res)
	}
	c.work.out = q.append(c.work.out, &res)
	return ""
}

// append appends an integer for each window; before them, if the command has limits, whether they
// allowed it, and two integers for each of them.
func (q *distinctQuery) append(b []byte, res *distinct.Result) []byte {
	limits := min(len(q.op.Limits), len(res.Counts))
	judged, counted := res.Counts[:limits], res.Counts[limits:]
	if q.asked {
		b = appendInt(appendArray(b, 1+2*len(judged)+len(counted)), truth(res.Allowed))
		for i, c := range judged {
			b = appendInt(appendInt(b, c.Values), max(0, q.op.Limits[i].Max-c.Values))
		}
	} else {
		b = appendArray(b, len(counted))
	}
	for _, c := range counted {
		b = appendInt(b, c.Values)
	}
	return b
}

// refusal is the error where default rules refuse a command whose answer has no place for it.
func (q *distinctQuery) refusal(res *distinct.Result) errorReply {
	var by []string
	for _, i := range res.Over {
		if !slices.Contains(q.op.Shadow, i) {
			by = append(by, q.names[i])
		}
	}
	return errorf(codeRefused, "by %s; nothing was added", strings.Join(by, ", "))
}

// countDistinct counts what limits decided about values.
func (c *conn) countDistinct(q *distinctQuery, res *distinct.Result) {
	counters, recorder := c.server.opts.Verdicts, c.server.opts.Decisions
	if counters == nil && recorder == nil || len(q.op.Limits) == 0 {
		return
	}
	run := verdicts.Begin(counters, verdicts.RESP)
	run.RecordTo(recorder)
	run.Values(&q.op, len(q.values), res, func(k int) verdicts.Origin { return q.origins[k] })
	run.End(time.Since(c.now))
}
