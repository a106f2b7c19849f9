package peer

import (
	"encoding/binary"
	"errors"
)

// errFormat says that a message is malformed.
var errFormat = errors.New("malformed message")

// appendBytes appends b, preceded by its length.
func appendBytes[T ~[]byte | ~string](to []byte, b T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

// reader parses a message. After the first mistake it returns only zero values, and err is set.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errFormat
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of items that take at least one byte each.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

// bytes returns a view into the message.
func (r *reader) bytes() []byte {
	n := r.count()
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) string() string { return string(r.bytes()) }

// end returns an error unless everything has been read.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = errFormat
	}
	return r.err
}
