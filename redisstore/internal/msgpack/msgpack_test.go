package msgpack_test

import (
	"slices"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore/internal/msgpack"
)

// pack appends numbers as an array.
func pack(b []byte, numbers []int64) []byte {
	b = msgpack.AppendHead(b)
	for _, n := range numbers {
		b = msgpack.Append(b, n)
	}
	msgpack.SetHead(b, len(numbers))
	return b
}

// unpack appends the numbers of an array.
func unpack(to []int64, s string) (numbers []int64, ok bool) {
	r := msgpack.Reader{Rest: s}
	for n := r.Array(); n > 0 && !r.Bad; n-- {
		to = append(to, r.Integer())
	}
	return to, !r.Bad && r.Rest == ""
}

// TestNumbersGoToRedisAndBack makes Redis decode numbers of every length and encode them again.
func TestNumbersGoToRedisAndBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var all []int64
	for shift := range 53 {
		n := int64(1) << shift
		all = append(all, n-1, n, n+1, -n+1, -n, -n-1)
	}
	for _, numbers := range [][]int64{nil, all[:15], all} {
		back, err := srv.Do("EVAL", "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))",
			0, pack(nil, numbers)).Text()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := unpack(nil, back); !ok || !slices.Equal(got, numbers) {
			t.Errorf("%v come back as %v, %v", numbers, got, ok)
		}
		for cut := range len(back) {
			if got, ok := unpack(nil, back[:cut]); ok {
				t.Errorf("%d bytes of %d are taken for %v", cut, len(back), got)
			}
		}
	}
}
