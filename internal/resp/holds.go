package resp

import (
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
)

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
