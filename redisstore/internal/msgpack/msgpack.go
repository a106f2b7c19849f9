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
