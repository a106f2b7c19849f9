package peer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// The first byte of a result with an error: its kind. The first byte of an answer to a request is
// one of these, too, or resultOK.
const (
	resultOK byte = iota
	resultOther
	resultInvalid
	resultMoved
	resultElsewhere
	resultUnavailable
	resultUnknown
	resultOverload
	resultFull
	resultClosed
	resultLate
	resultRetry
)

// The first byte of a result without an error. The source is in the bits between. Parts not
// announced by the bits for age and detail are left out. Their defaults: age 0, no refusal, every
// check counted if its kind of operation counts, no time to wait, and results for exactly the
// requested checks and limits.
const (
	doneBit     = 0x80
	detailBit   = 0x40
	ageBit      = 0x20
	allowedBit  = 1
	degradedBit = 2
	sourceShift = 2
	sourceMask  = 7
)

// sources are encoded by their index.
var sources = [...]twotier.Source{
	twotier.SourceMemory, twotier.SourceOwner, twotier.SourceRedis, twotier.SourceFallback,
	twotier.SourceDegraded, twotier.SourceNear,
}

// The bits of the first byte of a check in detail.
const (
	refusedBit = 1
	countedBit = 2
)

// timeDeltas encodes the times in the results of a call, each as the difference from the previous
// one: nearly always 0.
type timeDeltas struct{ last int64 }

func (t *timeDeltas) append(b []byte, ts int64) []byte {
	b = appendInt(b, ts-t.last)
	t.last = ts
	return b
}

func (t *timeDeltas) read(r *reader) int64 {
	t.last += r.int()
	return t.last
}

// appendResult appends the outcome of a task with the given operation.
func appendResult(b []byte, op *twotier.Op, res *twotier.Result, t *timeDeltas) []byte {
	if res.Err != nil {
		return appendError(b, res.Err)
	}
	plain := isPlain(op, res)
	b = append(b, firstByte(res, plain))
	if res.AgeMS != 0 {
		b = appendInt(b, res.AgeMS)
	}
	if plain {
		for i := range res.Checks {
			if op.Kind != twotier.Count {
				b = t.append(b, res.Checks[i].TS)
			}
			for j := range res.Checks[i].Limits {
				b = appendFigures(b, &res.Checks[i].Limits[j])
			}
		}
		return b
	}
	return appendDetails(b, res, t)
}

// isPlain reports whether a result can be sent without details.
func isPlain(op *twotier.Op, res *twotier.Result) bool {
	if res.RetryAfter != 0 || len(res.Checks) != len(op.Checks) {
		return false
	}
	for i := range res.Checks {
		c := &res.Checks[i]
		if c.Refused || c.RetryAfter != 0 || len(c.Limits) != len(op.Checks[i].Limits) ||
			(c.TS == 0) != (op.Kind == twotier.Count) {
			return false
		}
		for j := range c.Limits {
			if c.Limits[j].Refused {
				return false
			}
		}
	}
	return true
}

func firstByte(res *twotier.Result, plain bool) byte {
	bits := byte(doneBit)
	if res.Allowed {
		bits |= allowedBit
	}
	if res.Degraded {
		bits |= degradedBit
	}
	if res.AgeMS != 0 {
		bits |= ageBit
	}
	if !plain {
		bits |= detailBit
	}
	for i, s := range sources {
		if s == res.Source {
			bits |= byte(i) << sourceShift
			break
		}
	}
	return bits
}

// appendFigures appends the figures of one window. Behind a width of buckets of 0 is the error of
// an estimate of different values, whose width is 1.
func appendFigures(b []byte, l *twotier.LimitResult) []byte {
	b = appendInt(b, l.Count)
	b = appendInt(b, l.Count-l.Lo)
	b = appendInt(b, l.Hi-l.Count)
	if l.BucketMS > 0 && l.Error == 0 {
		return appendUint(b, uint64(l.BucketMS))
	}
	return appendUint(appendUint(b, 0), math.Float64bits(l.Error))
}

// appendDetails appends the checks of a result in full.
func appendDetails(b []byte, res *twotier.Result, t *timeDeltas) []byte {
	b = appendInt(b, res.RetryAfter)
	b = appendUint(b, uint64(len(res.Checks)))
	for i := range res.Checks {
		c := &res.Checks[i]
		b = append(b, refusedBit*boolByte(c.Refused)|countedBit*boolByte(c.TS != 0))
		if c.TS != 0 {
			b = t.append(b, c.TS)
		}
		b = appendInt(b, c.RetryAfter)
		b = appendUint(b, uint64(len(c.Limits)))
		for j := range c.Limits {
			b = append(b, boolByte(c.Limits[j].Refused))
			b = appendFigures(b, &c.Limits[j])
		}
	}
	return b
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// readResult reads the outcome of a task with the given operation into res.
func readResult(r *reader, op *twotier.Op, res *twotier.Result, t *timeDeltas) {
	res.Reset()
	first := r.byte()
	if r.err != nil {
		return
	}
	if first&doneBit == 0 {
		res.Err = readError(r, first)
		return
	}
	res.Allowed, res.Degraded = first&allowedBit != 0, first&degradedBit != 0
	if at := int(first>>sourceShift) & sourceMask; at < len(sources) {
		res.Source = sources[at]
	}
	if first&ageBit != 0 {
		res.AgeMS = r.int()
	}
	if first&detailBit != 0 {
		readDetails(r, op, res, t)
		return
	}
	for i := range op.Checks {
		c := res.AddCheck()
		if op.Kind != twotier.Count {
			c.TS = t.read(r)
		}
		for j := range op.Checks[i].Limits {
			c.Limits = append(c.Limits, readFigures(r, &op.Checks[i].Limits[j]))
		}
	}
}

// readFigures reads the figures of one window. limit may be nil.
func readFigures(r *reader, limit *twotier.Limit) twotier.LimitResult {
	l := twotier.LimitResult{Count: r.int()}
	l.Lo, l.Hi, l.BucketMS = l.Count-r.int(), l.Count+r.int(), int64(r.uint())
	if l.BucketMS == 0 {
		l.Error = math.Float64frombits(r.uint())
		l.BucketMS = int64(boolByte(l.Error != 0))
	}
	if limit != nil {
		l.Window, l.Max, l.Period = limit.Window, limit.Max, limit.Period
	}
	return l
}

// readDetails reads checks in full.
func readDetails(r *reader, op *twotier.Op, res *twotier.Result, t *timeDeltas) {
	res.RetryAfter = r.int()
	for i := range r.itemCount() {
		c := res.AddCheck()
		bits := r.byte()
		if c.Refused = bits&refusedBit != 0; bits&countedBit != 0 {
			c.TS = t.read(r)
		}
		c.RetryAfter = r.int()
		for j := range r.itemCount() {
			var limit *twotier.Limit
			if i < len(op.Checks) && j < len(op.Checks[i].Limits) {
				limit = &op.Checks[i].Limits[j]
			}
			refused := r.byte() == 1
			l := readFigures(r, limit)
			l.Refused = refused
			c.Limits = append(c.Limits, l)
		}
	}
}

// appendError appends an error so that the other side gets one of the same kind.
func appendError(b []byte, err error) []byte {
	var invalid *twotier.InvalidError
	var moved *rpc.MovedError
	var later *twotier.RetryError
	switch {
	case errors.Is(err, twotier.ErrUnknownOutcome): // takes precedence over all others
	case errors.As(err, &invalid):
		b = append(b, resultInvalid)
		b = appendInt(b, int64(invalid.Check))
		b = appendInt(b, int64(invalid.Limit))
		return appendBytes(appendBytes(b, invalid.Field), invalid.Detail)
	case errors.As(err, &moved):
		return appendMember(append(b, resultMoved), &moved.To)
	case errors.As(err, &later):
		b = appendInt(append(b, resultRetry), later.After.Milliseconds())
	}
	return appendBytes(append(b, errorCode(err)), err.Error())
}

// errorCode returns the code of an error that is sent as its text.
func errorCode(err error) byte {
	switch {
	case errors.Is(err, twotier.ErrUnknownOutcome):
		return resultUnknown
	case errors.Is(err, twotier.ErrNotOwner):
		return resultElsewhere
	case errors.Is(err, rpc.ErrLate):
		return resultLate
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return resultUnknown
	case errors.Is(err, twotier.ErrFull):
		return resultFull
	case errors.Is(err, twotier.ErrOverload):
		return resultOverload
	case errors.Is(err, twotier.ErrClosed):
		return resultClosed
	case errors.Is(err, twotier.ErrUnavailable):
		return resultUnavailable
	}
	return resultOther
}

// errorKind is the inverse of errorCode. Unknown codes mean an unknown outcome.
func errorKind(code byte) error {
	switch code {
	case resultElsewhere:
		return twotier.ErrNotOwner
	case resultFull:
		return twotier.ErrFull
	case resultOverload:
		return twotier.ErrOverload
	case resultClosed:
		return rpc.ErrRefused
	case resultLate:
		return rpc.ErrLate
	case resultUnavailable:
		return twotier.ErrUnavailable
	}
	return twotier.ErrUnknownOutcome
}

func readError(r *reader, code byte) error {
	switch code {
	case resultInvalid:
		return &twotier.InvalidError{Check: int(r.int()), Limit: int(r.int()), Field: r.string(),
			Detail: r.string()}
	case resultMoved:
		return &rpc.MovedError{To: readMember(r)}
	case resultRetry:
		after := time.Duration(r.int()) * time.Millisecond
		return &twotier.RetryError{After: after,
			Err: &remoteError{kind: errorKind(r.byte()), text: r.string()}}
	}
	return &remoteError{kind: errorKind(code), text: r.string()}
}

// remoteError is an error returned by another node.
type remoteError struct {
	kind error
	text string
}

// Error returns the other node's text.
func (e *remoteError) Error() string { return e.text }

// Unwrap returns the kind of error.
func (e *remoteError) Unwrap() error { return e.kind }

// appendMember appends a member. Its address becomes the one for messages between nodes.
func appendMember(b []byte, m *ring.Member) []byte {
	b = appendBytes(appendBytes(appendBytes(b, m.ID), m.Name), m.PeerAddress())
	b = appendInt(b, m.Born)
	return appendBytes(append(b, boolByte(m.Draining)|boolByte(m.Starting)<<1), m.Tag)
}

func readMember(r *reader) ring.Member {
	m := ring.Member{ID: r.string(), Name: r.string(), Address: r.string(), Born: r.int()}
	bits := r.byte()
	m.Draining, m.Starting, m.Tag = bits&1 != 0, bits&2 != 0, r.string()
	return m
}

func wrapNode(err error, to *ring.Member) error { return fmt.Errorf("node %s: %w", to.ID, err) }
