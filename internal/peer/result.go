package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// The first byte of a result: OK, or the kind of error.
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

// The flags of a result without an error, in its second byte. The source is in the bits above them.
const (
	allowedBit  = 1
	degradedBit = 2
	sourceShift = 2
)

// sources are encoded by their index.
var sources = [...]node.Source{
	node.SourceMemory, node.SourceOwner, node.SourceRedis, node.SourceFallback, node.SourceDegraded,
	node.SourceShared,
}

// appendResult appends the outcome of a task.
func appendResult(b []byte, res *node.Result) []byte {
	if res.Err != nil {
		return appendError(b, res.Err)
	}
	bits := byte(0)
	if res.Allowed {
		bits |= allowedBit
	}
	if res.Degraded {
		bits |= degradedBit
	}
	for i, s := range sources {
		if s == res.Source {
			bits |= byte(i) << sourceShift
		}
	}
	b = append(b, resultOK, bits)
	b = binary.AppendVarint(b, res.RetryAfter)
	b = binary.AppendVarint(b, res.AgeMS)
	b = binary.AppendUvarint(b, uint64(len(res.Checks)))
	for i := range res.Checks {
		c := &res.Checks[i]
		b = append(b, boolByte(c.Refused))
		b = binary.AppendVarint(b, c.RetryAfter)
		b = binary.AppendUvarint(b, uint64(len(c.Limits)))
		for j := range c.Limits {
			l := &c.Limits[j]
			b = append(b, boolByte(l.Refused))
			b = binary.AppendVarint(b, l.Count)
			b = binary.AppendVarint(b, l.Count-l.Lo)
			b = binary.AppendVarint(b, l.Hi-l.Count)
			b = binary.AppendUvarint(b, uint64(l.BucketMS))
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

// readResult reads the outcome of a task into res.
func readResult(r *reader, t *rpc.Task, res *node.Result) {
	res.Reset()
	code := r.byte()
	if r.err != nil {
		return
	}
	if code != resultOK {
		res.Err = readError(r, code)
		return
	}
	bits := r.byte()
	res.Allowed, res.Degraded = bits&allowedBit != 0, bits&degradedBit != 0
	if at := int(bits >> sourceShift); at < len(sources) {
		res.Source = sources[at]
	}
	res.RetryAfter, res.AgeMS = r.int(), r.int()
	for i := range r.count() {
		c := res.AddCheck()
		c.Refused, c.RetryAfter = r.byte() == 1, r.int()
		for j := range r.count() {
			l := node.LimitResult{Refused: r.byte() == 1, Count: r.int()}
			l.Lo, l.Hi, l.BucketMS = l.Count-r.int(), l.Count+r.int(), int64(r.uint())
			if i < len(t.Op.Checks) && j < len(t.Op.Checks[i].Limits) {
				limit := &t.Op.Checks[i].Limits[j]
				l.Window, l.Max = limit.Window, limit.Max
			}
			c.Limits = append(c.Limits, l)
		}
	}
}

// appendError appends an error so that the other side gets one of the same kind.
func appendError(b []byte, err error) []byte {
	var invalid *node.InvalidError
	var moved *rpc.MovedError
	var later *syncer.RetryError
	switch {
	case errors.As(err, &invalid):
		b = append(b, resultInvalid)
		b = binary.AppendVarint(b, int64(invalid.Check))
		b = binary.AppendVarint(b, int64(invalid.Limit))
		return appendBytes(appendBytes(b, invalid.Field), invalid.Detail)
	case errors.As(err, &moved):
		return appendMember(append(b, resultMoved), &moved.To)
	case errors.As(err, &later):
		b = binary.AppendVarint(append(b, resultRetry), later.After.Milliseconds())
	}
	return appendBytes(append(b, codeOf(err)), err.Error())
}

// codeOf returns the code of an error that is sent as its text.
func codeOf(err error) byte {
	switch {
	case errors.Is(err, node.ErrNotOwner):
		return resultElsewhere
	case errors.Is(err, rpc.ErrLate):
		return resultLate
	case errors.Is(err, node.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return resultUnknown
	case errors.Is(err, node.ErrFull):
		return resultFull
	case errors.Is(err, node.ErrOverload):
		return resultOverload
	case errors.Is(err, node.ErrClosed):
		return resultClosed
	case errors.Is(err, node.ErrUnavailable):
		return resultUnavailable
	}
	return resultOther
}

// kindOf is the inverse of codeOf. Unknown codes mean an unknown outcome.
func kindOf(code byte) error {
	switch code {
	case resultElsewhere:
		return node.ErrNotOwner
	case resultFull:
		return node.ErrFull
	case resultOverload:
		return node.ErrOverload
	case resultClosed:
		return rpc.ErrRefused
	case resultLate:
		return rpc.ErrLate
	case resultUnavailable:
		return node.ErrUnavailable
	}
	return node.ErrUnknownOutcome
}

func readError(r *reader, code byte) error {
	switch code {
	case resultInvalid:
		return &node.InvalidError{Check: int(r.int()), Limit: int(r.int()), Field: r.string(),
			Detail: r.string()}
	case resultMoved:
		return &rpc.MovedError{To: readMember(r)}
	case resultRetry:
		after := time.Duration(r.int()) * time.Millisecond
		return &syncer.RetryError{After: after,
			Err: &remoteError{kind: kindOf(r.byte()), text: r.string()}}
	}
	return &remoteError{kind: kindOf(code), text: r.string()}
}

// remoteError is an error that another node returned.
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
	b = binary.AppendVarint(b, m.Born)
	return appendBytes(append(b, boolByte(m.Draining)|boolByte(m.Starting)<<1), m.Tag)
}

func readMember(r *reader) ring.Member {
	m := ring.Member{ID: r.string(), Name: r.string(), Address: r.string(), Born: r.int()}
	bits := r.byte()
	m.Draining, m.Starting, m.Tag = bits&1 != 0, bits&2 != 0, r.string()
	return m
}

// wrap adds the node at which an error happened.
func wrap(err error, to *ring.Member) error { return fmt.Errorf("node %s: %w", to.ID, err) }
