package peer

import (
	"encoding/binary"
	"errors"
	"math"
)

// errFormat means that a message is malformed.
var errFormat = errors.New("malformed message")

// appendUint appends an unsigned number. Most numbers take one byte.
func appendUint(to []byte, v uint64) []byte {
	if v < 0x80 {
		return append(to, byte(v))
	}
	return binary.AppendUvarint(to, v)
}

// appendInt appends a signed number. Numbers near zero take one byte.
func appendInt(to []byte, v int64) []byte {
	return appendUint(to, uint64(v)<<1^uint64(v>>63))
}

// appendBytes appends b, preceded by its length.
func appendBytes[T ~[]byte | ~string](to []byte, b T) []byte {
	return append(appendUint(to, uint64(len(b))), b...)
}

// reader parses a message. After the first error it returns only zero values, and err is set.
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
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	return r.longUint()
}

// longUint reads a number of more than one byte.
func (r *reader) longUint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v := r.uint()
	return int64(v>>1) ^ -int64(v&1)
}

// itemCount reads a number of items that take at least one byte each.
func (r *reader) itemCount() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

// bytes returns a view into the message.
func (r *reader) bytes() []byte {
	n := r.itemCount()
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// lengthBytes is the size of a fixed-size length, which can be filled in after the content.
const lengthBytes = 4

// lengthPrefixed returns the content that follows a fixed-size length, as a view into the message.
func (r *reader) lengthPrefixed() []byte {
	if len(r.b) < lengthBytes {
		r.fail()
		return nil
	}
	n := uint64(binary.LittleEndian.Uint32(r.b))
	if r.b = r.b[lengthBytes:]; n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) string() string { return string(r.bytes()) }

// checkEnd returns an error unless everything has been read.
func (r *reader) checkEnd() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = errFormat
	}
	return r.err
}

// uint16 reads a number below 65,536.
func (r *reader) uint16() uint16 {
	v := r.uint()
	if v > math.MaxUint16 {
		r.fail()
		return 0
	}
	return uint16(v)
}
