package msgpack_test

import (
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// BenchmarkMessagePack encodes the numbers of about four keys with two windows each, as for a
// script of pure-Redis mode, and compares that with a library.
func BenchmarkMessagePack(b *testing.B) {
	numbers := make([]int64, 64)
	for i := range numbers {
		numbers[i] = int64(i) * 31_415_926
	}
	b.Run("ours", func(b *testing.B) {
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			out = pack(out[:0], numbers)
		}
	})
	handle := new(codec.MsgpackHandle)
	b.Run("codec", func(b *testing.B) {
		var out []byte
		encoder := codec.NewEncoderBytes(&out, handle)
		b.ReportAllocs()
		for b.Loop() {
			encoder.ResetBytes(&out)
			if err := encoder.Encode(numbers); err != nil {
				b.Fatal(err)
			}
		}
	})
}
