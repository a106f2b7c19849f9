package msgpack

import (
	"encoding/binary"
	"math"
)

// Append appends an integer.
func Append(b []byte, n int64) []byte {
	switch {
	case n >= -32 && n <= math.MaxInt8:
		return append(b, byte(n))
	case n >= 0 && n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(n))
}

// AppendText appends a string.
func AppendText(b []byte, text string) []byte {
	if len(text) < 32 {
		return append(append(b, 0xa0|byte(len(text))), text...)
	}
	return append(binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(len(text))), text...)
}

// AppendArray appends the head of an array of a known length.
func AppendArray(b []byte, n int) []byte {
	if n < 16 {
		return append(b, 0x90|byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

// AppendHead appends the head of an array, whose length [SetHead] fills in later.
func AppendHead(b []byte) []byte { return append(b, 0xdd, 0, 0, 0, 0) }

// SetHead sets the length of the array that b begins with.
func SetHead(b []byte, n int) { binary.BigEndian.PutUint32(b[1:], uint32(n)) }

// Peek returns whether an array, a text or neither, which is a number, comes next.
func (r *Reader) Peek() Type {
	if r.Bad || r.Rest == "" {
		return Number
	}
	switch h := r.Rest[0]; {
	case h&0xf0 == 0x90, h == 0xdc, h == 0xdd:
		return Array
	case h&0xe0 == 0xa0, h == 0xd9, h == 0xda, h == 0xdb:
		return Text
	}
	return Number
}

// Type is the type of a value.
type Type int

// The types of values.
const (
	Number Type = iota
	Text
	Array
)

// Reader decodes values that Redis has encoded. Unexpected input sets Bad, and everything after it
// reads as zero.
type Reader struct {
	// Rest is the input that has not been read.
	Rest string
	// Bad marks unexpected input.
	Bad bool
}

// next reads n bytes.
func (r *Reader) next(n int) string {
	if r.Bad || n > len(r.Rest) {
		r.Bad = true
		return ""
	}
	s := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return s
}

// unsigned reads a big-endian number of n bytes.
func (r *Reader) unsigned(n int) (v uint64) {
	for _, c := range []byte(r.next(n)) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (r *Reader) head() byte { return byte(r.unsigned(1)) }

// Array reads the head of an array and returns its length.
func (r *Reader) Array() int {
	switch h := r.head(); {
	case h&0xf0 == 0x90:
		return int(h & 0x0f)
	case h == 0xdc:
		return int(r.unsigned(2))
	case h == 0xdd:
		return int(r.unsigned(4))
	}
	r.Bad = true
	return 0
}

// Integer reads a number. One that fits a Lua number but not an int64 is truncated.
func (r *Reader) Integer() int64 {
	switch h := r.head(); {
	case h < 0x80, h >= 0xe0:
		return int64(int8(h))
	case h == 0xcc, h == 0xcd, h == 0xce, h == 0xcf:
		return int64(min(r.unsigned(1<<(h-0xcc)), math.MaxInt64))
	case h == 0xd0:
		return int64(int8(r.unsigned(1)))
	case h == 0xd1:
		return int64(int16(r.unsigned(2)))
	case h == 0xd2:
		return int64(int32(r.unsigned(4)))
	case h == 0xd3:
		return int64(r.unsigned(8))
	case h == 0xcb:
		f := math.Float64frombits(r.unsigned(8))
		return int64(max(-math.MaxInt64/2, min(f, math.MaxInt64/2)))
	}
	r.Bad = true
	return 0
}

// Text reads a string.
func (r *Reader) Text() string {
	switch h := r.head(); {
	case h&0xe0 == 0xa0:
		return r.next(int(h & 0x1f))
	case h == 0xd9, h == 0xda, h == 0xdb:
		return r.next(int(r.unsigned(1 << (h - 0xd9))))
	}
	r.Bad = true
	return ""
}
