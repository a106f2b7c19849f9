package redisstore_test

import (
	"slices"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

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
			0, redisstore.Pack(numbers...)).Text()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := redisstore.Unpack(back); !ok || !slices.Equal(got, numbers) {
			t.Errorf("%v come back as %v, %v", numbers, got, ok)
		}
		for cut := range len(back) {
			if got, ok := redisstore.Unpack(back[:cut]); ok {
				t.Errorf("%d bytes of %d are taken for %v", cut, len(back), got)
			}
		}
	}
}
