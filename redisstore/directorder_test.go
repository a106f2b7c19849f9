package redisstore_test

import (
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// TestBatchKeepsTheOrderOfEveryKey: the operations of a batch share a key that is the second one of
// an acquire. They are carried out in their order, on one server and in a cluster.
func TestBatchKeepsTheOrderOfEveryKey(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"one server": redistest.Start(t).URL(),
		"cluster": redistest.StartCluster(t, 2, 0).URL()} {
		s := open(t, redisstore.Options{URL: url})
		d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
		for i := range 100 {
			a := fmt.Sprint("a", i)
			b := elsewhere(s, a, fmt.Sprint("b", i, "-"))
			once := func(key string) twotier.Check { return check(key, 1, 60_000, 1) }
			read := twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{check(b, 0, 60_000, 0)}}
			ops := []twotier.Op{read,
				{Kind: twotier.Acquire, Checks: []twotier.Check{once(a), once(b)}},
				{Kind: twotier.Acquire, Checks: []twotier.Check{once(b)}}, read}
			res := make([]twotier.Result, len(ops))
			d.DoAll(t.Context(), ops, res)
			for j := range res {
				if res[j].Err != nil {
					t.Fatal(res[j].Err)
				}
			}
			before, after := res[0].Checks[0].Limits[0].Hi, res[3].Checks[0].Limits[0].Hi
			if before != 0 || !res[1].Allowed || res[2].Allowed || after != 1 {
				t.Fatalf("%s, batch %d: %d before, allowed %v and %v, %d after", name, i, before,
					res[1].Allowed, res[2].Allowed, after)
			}
		}
	}
}
