package msgpack_test

import (
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// BenchmarkMessagePack encodes and decodes the numbers of about four keys with two windows each, as
// for a script of pure-Redis mode, and compares that with a library.
func BenchmarkMessagePack(b *testing.B) {
	numbers := make([]int64, 64)
	for i := range numbers {
		numbers[i] = int64(i) * 31_415_926
	}
	packed := string(pack(nil, numbers))
	b.Run("write/ours", func(b *testing.B) {
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			out = pack(out[:0], numbers)
		}
	})
	b.Run("read/ours", func(b *testing.B) {
		var list []int64
		b.ReportAllocs()
		for b.Loop() {
			var ok bool
			if list, ok = unpack(list[:0], packed); !ok {
				b.Fatal("what was packed can't be read")
			}
		}
	})
	handle := new(codec.MsgpackHandle)
	b.Run("write/codec", func(b *testing.B) {
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
	b.Run("read/codec", func(b *testing.B) {
		decoder := codec.NewDecoderBytes(nil, handle)
		var list []int64
		b.ReportAllocs()
		for b.Loop() {
			decoder.ResetBytes([]byte(packed))
			if err := decoder.Decode(&list); err != nil {
				b.Fatal(err)
			}
		}
	})
}
