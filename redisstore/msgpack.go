package redisstore

import (
	"encoding/binary"
	"math"
)

// The script of pure-Redis mode receives and returns numbers as MessagePack (msgpack.org), which
// Redis decodes and encodes in C: a separate argument for each number would cost Redis ten times as
// much. The encoding is written by hand because every request of that mode passes through here, and
// a library takes ten times as long to encode and twice as long to decode: see
// BenchmarkMessagePack.

// appendPacked appends an integer.
func appendPacked(b []byte, n int64) []byte {
	switch {
	case n >= -32 && n <= math.MaxInt8:
		return append(b, byte(n))
	case n >= 0 && n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(n))
}

// appendPackedHead appends the head of an array, whose length setPackedHead fills in later.
func appendPackedHead(b []byte) []byte { return append(b, 0xdd, 0, 0, 0, 0) }

func setPackedHead(b []byte, n int) { binary.BigEndian.PutUint32(b[1:], uint32(n)) }

// unpacker decodes values that Redis packed. Unexpected input sets bad, and everything after it
// reads as zero.
type unpacker struct {
	rest string
	bad  bool
}

// next takes n bytes.
func (u *unpacker) next(n int) string {
	if u.bad || n > len(u.rest) {
		u.bad = true
		return ""
	}
	s := u.rest[:n]
	u.rest = u.rest[n:]
	return s
}

// unsigned takes a big-endian number of n bytes.
func (u *unpacker) unsigned(n int) (v uint64) {
	for _, c := range []byte(u.next(n)) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (u *unpacker) head() byte { return byte(u.unsigned(1)) }

// array takes the head of an array and returns its length.
func (u *unpacker) array() int {
	switch h := u.head(); {
	case h&0xf0 == 0x90:
		return int(h & 0x0f)
	case h == 0xdc:
		return int(u.unsigned(2))
	case h == 0xdd:
		return int(u.unsigned(4))
	}
	u.bad = true
	return 0
}

// integer takes a number. One that fits a Lua number but not an int64 is truncated.
func (u *unpacker) integer() int64 {
	switch h := u.head(); {
	case h < 0x80, h >= 0xe0:
		return int64(int8(h))
	case h == 0xcc, h == 0xcd, h == 0xce, h == 0xcf:
		return int64(min(u.unsigned(1<<(h-0xcc)), math.MaxInt64))
	case h == 0xd0:
		return int64(int8(u.unsigned(1)))
	case h == 0xd1:
		return int64(int16(u.unsigned(2)))
	case h == 0xd2:
		return int64(int32(u.unsigned(4)))
	case h == 0xd3:
		return int64(u.unsigned(8))
	case h == 0xcb:
		f := math.Float64frombits(u.unsigned(8))
		return int64(max(-math.MaxInt64/2, min(f, math.MaxInt64/2)))
	}
	u.bad = true
	return 0
}

// text takes a string.
func (u *unpacker) text() string {
	switch h := u.head(); {
	case h&0xe0 == 0xa0:
		return u.next(int(h & 0x1f))
	case h == 0xd9, h == 0xda, h == 0xdb:
		return u.next(int(u.unsigned(1 << (h - 0xd9))))
	}
	u.bad = true
	return ""
}
