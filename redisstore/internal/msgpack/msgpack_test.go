package msgpack_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/msgpack"
)

func pack(b []byte, numbers []int64) []byte {
	b = msgpack.AppendHead(b)
	for _, n := range numbers {
		b = msgpack.Append(b, n)
	}
	msgpack.SetHead(b, len(numbers))
	return b
}

// TestRedisDecodes makes Redis decode numbers and texts of every length.
func TestRedisDecodes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var all []int64
	for shift := range 53 {
		n := int64(1) << shift
		all = append(all, n-1, n, n+1, -n+1, -n, -n-1)
	}
	for _, numbers := range [][]int64{nil, all[:15], all} {
		var want []string
		for _, n := range numbers {
			want = append(want, layout.Number(n))
		}
		got, err := srv.Do("EVAL", `local out = {}
			for i, n in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = string.format('%.0f', n) end
			return out`, 0, pack(nil, numbers)).StringSlice()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v are read as %v, %v", want, got, err)
		}
	}
	texts, packed := []string{}, msgpack.AppendArray(nil, 40)
	for n := range 40 {
		texts = append(texts, strings.Repeat("x", n))
		packed = msgpack.AppendText(packed, texts[n])
	}
	got, err := srv.Do("EVAL", "return cmsgpack.unpack(ARGV[1])", 0, packed).StringSlice()
	if err != nil || !slices.Equal(got, texts) {
		t.Errorf("texts are read as %q, %v", got, err)
	}
}

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
