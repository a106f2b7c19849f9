package leaparray

import (
	"encoding/binary"
	"errors"
)

// ValueChunks is the number of chunks in which a store keeps the values of a key. A value is in the
// chunk that the first four bits of its hash name. More chunks would take more memory in Redis, and
// fewer would make it write more for a new value.
const ValueChunks = 16

const (
	chunkShift = 64 - 4
	// headChunk is changed along with the head, which is written with whatever changes.
	headChunk = 1

	// A value takes its hash and its time, big-endian.
	timeBytes  = 6
	valueBytes = 8 + timeBytes
)

var errValues = errors.New("not encoded values")

func (v *Values) mark(hash uint64) { v.changed |= 1 << (hash >> chunkShift) }

// Changed returns the chunks that have changed since they were last taken for unchanged: bit i
// stands for chunk i. Whoever writes one writes the head as well.
func (v *Values) Changed() uint64 { return v.changed }

// SetChanged replaces what Changed returns.
func (v *Values) SetChanged(chunks uint64) { v.changed = chunks }

// AppendHead appends what the copy knows beside the values: nothing if that is nothing.
func (v *Values) AppendHead(b []byte) []byte {
	if v.reset == 0 && len(v.dropped) == 0 {
		return b
	}
	b = appendTime(b, v.reset)
	for _, at := range v.dropped {
		b = appendTime(b, at)
	}
	return b
}

// MergeHead merges an encoded head.
func (v *Values) MergeHead(data []byte) error {
	if len(data)%timeBytes != 0 || len(data) > 65*timeBytes {
		return errValues
	}
	if len(data) == 0 {
		return nil
	}
	from := Values{reset: readTime(data)}
	for data = data[timeBytes:]; len(data) > 0; data = data[timeBytes:] {
		from.dropped = append(from.dropped, readTime(data))
	}
	v.Merge(&from, len(v.list))
	return nil
}

// AppendChunk appends the values of a chunk.
func (v *Values) AppendChunk(b []byte, chunk int) []byte {
	for _, has := range v.chunk(chunk) {
		b = appendTime(binary.BigEndian.AppendUint64(b, has.Hash), has.Seen)
	}
	return b
}

// chunk returns the values of a chunk.
func (v *Values) chunk(chunk int) []Value {
	from, _ := v.find(uint64(chunk) << chunkShift)
	if chunk == ValueChunks-1 {
		return v.list[from:]
	}
	to, _ := v.find(uint64(chunk+1) << chunkShift)
	return v.list[from:to]
}

// MergeChunk merges an encoded chunk, or several. The copy then holds at most so many values.
func (v *Values) MergeChunk(data []byte, most int) error {
	if len(data)%valueBytes != 0 {
		return errValues
	}
	for ; len(data) > 0; data = data[valueBytes:] {
		v.See(binary.BigEndian.Uint64(data), readTime(data[8:]), most)
	}
	return nil
}

// AppendChanged appends the head and everything that has changed, for another copy.
func (v *Values) AppendChanged(b []byte, chunks uint64) []byte {
	head := v.AppendHead(nil)
	b = append(append(b, byte(len(head)/timeBytes)), head...)
	for chunk := range ValueChunks {
		if chunks>>chunk&1 == 1 {
			b = v.AppendChunk(b, chunk)
		}
	}
	return b
}

// DecodeValues decodes what AppendChanged has appended.
func DecodeValues(data []byte) (v Values, err error) {
	if len(data) == 0 {
		return v, errValues
	}
	head := int(data[0]) * timeBytes
	if len(data) < 1+head {
		return v, errValues
	}
	if err := v.MergeHead(data[1 : 1+head]); err != nil {
		return v, err
	}
	data = data[1+head:]
	if len(data)%valueBytes != 0 {
		return v, errValues
	}
	v.list = make([]Value, 0, len(data)/valueBytes)
	for ; len(data) > 0; data = data[valueBytes:] {
		has := Value{binary.BigEndian.Uint64(data), readTime(data[8:])}
		if n := len(v.list); n > 0 && v.list[n-1].Hash >= has.Hash {
			return Values{}, errValues
		}
		v.list = append(v.list, has)
	}
	return v, nil
}

func appendTime(b []byte, ms int64) []byte {
	return append(b, byte(ms>>40), byte(ms>>32), byte(ms>>24), byte(ms>>16), byte(ms>>8), byte(ms))
}

func readTime(b []byte) int64 {
	return int64(b[0])<<40 | int64(b[1])<<32 | int64(b[2])<<24 | int64(b[3])<<16 |
		int64(b[4])<<8 | int64(b[5])
}
