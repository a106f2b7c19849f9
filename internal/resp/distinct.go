package resp

import (
	"bytes"
	"context"
	"fmt"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/httpapi/token"
	"twotier.dev/twotier/internal/request"
)

// Distincter counts distinct values. A [Service] may be one; otherwise there is no TT.DISTINCT.
type Distincter interface {
	// Distinct adds values to a key and counts how many different ones there are. Without values it
	// only counts.
	Distinct(ctx context.Context, op *distinct.Op, values [][]byte, res *distinct.Result) error
}

// distinctQuery is the arguments of TT.DISTINCT.
type distinctQuery struct {
	op     distinct.Op
	values [][]byte
}

// parse reads key [NS ns] [TS ms] [VALUES n v...] [WINDOW w...].
func (q *distinctQuery) parse(args [][]byte) errorReply {
	if q.op.Key = args[1]; !request.ValidKey(q.op.Key) {
		return refused("key", request.WantKey)
	}
	for args = args[2:]; len(args) > 0; {
		option := bytes.ToUpper(args[0][:min(len(args[0]), 8)])
		if len(args) < 2 {
			return refused(clip(args[0]), "its value is missing")
		}
		value := args[1]
		args = args[2:]
		switch string(option) {
		case "NS":
			if q.op.NS = value; !request.ValidNS(value) {
				return refused("ns", request.WantNS)
			}
		case "TS":
			ts, ok := integer(value)
			if q.op.TS = ts; !ok || ts < 1 {
				return refused("ts", "want unix milliseconds, at least 1")
			}
		case "VALUES":
			n, ok := integer(value)
			if !ok || n < 1 || n > distinct.MaxValues || n > int64(len(args)) {
				return refused("values", fmt.Sprintf("want their number, 1 to %d, and so many "+
					"values", distinct.MaxValues))
			}
			q.values, args = args[:n], args[n:]
		case "WINDOW":
			if e := q.windows(value, args); e != "" {
				return e
			}
			args = nil
		default:
			return refused(clip(option), "unknown option; want NS, TS, VALUES or WINDOW")
		}
	}
	return q.check()
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

// check refuses what has nothing to do, and values that are too long.
func (q *distinctQuery) check() errorReply {
	if len(q.values)+len(q.op.Windows) == 0 {
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

// distinct is TT.DISTINCT key [NS ns] [TS ms] [VALUES n v...] [WINDOW w...].
func (c *conn) distinct(args [][]byte) errorReply {
	service, ok := c.server.opts.Service.(Distincter)
	if !ok {
		return errorf(codeErr, "this node does not count distinct values")
	}
	var q distinctQuery
	if e := q.parse(args); e != "" {
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
	c.work.out = appendArray(c.work.out, len(res.Counts))
	for i := range res.Counts {
		c.work.out = appendInt(c.work.out, res.Counts[i].Values)
	}
	return ""
}
