package syncer_test

import (
	"context"
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// BenchmarkValues acquires one value of a key with many values, under two limits: a known value, a
// new one, and one that is refused.
func BenchmarkValues(b *testing.B) {
	for _, held := range []int{8, 300, 4000} {
		for _, kind := range []string{"known", "new", "refused"} {
			b.Run(fmt.Sprintf("%s/%d", kind, held), func(b *testing.B) {
				benchValues(b, kind, held)
			})
		}
	}
}

func benchValues(b *testing.B, kind string, held int) {
	c := openAlone(b, syncer.Options{Namespaces: map[string]syncer.Namespace{
		"default": {MostValues: syncer.MostValues}}})
	most := int64(1 << 30)
	if kind == "refused" {
		most = int64(held)
	}
	check := checkOf("/k", int64(held))
	known := check.Values[held/2]
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check}}
	var res twotier.Result
	if err := c.Do(context.Background(), &op, &res); err != nil {
		b.Fatal(err)
	}
	check.Limits = []twotier.Limit{{Window: 60_000, Max: most}, {Window: 86_400_000, Max: most}}
	check.Values, check.N = []uint64{known}, 1
	op = twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{check}}
	i := uint64(0)
	for b.Loop() {
		if i++; kind != "known" {
			op.Checks[0].Values[0] = leaparray.CleanHash((i*0x9e3779b97f4a7c15)<<1 | 1)
		}
		if kind == "new" && i%256 == 0 {
			b.StopTimer()
			if err := c.ResetKey(context.Background(), check.NS, check.Key); err != nil {
				b.Fatal(err)
			}
			again := checkOf("/k", int64(held))
			if err := c.Do(context.Background(), &twotier.Op{Kind: twotier.Add,
				Checks: []twotier.Check{again}}, &res); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		if err := c.Do(context.Background(), &op, &res); err != nil ||
			res.Allowed == (kind == "refused") {
			b.Fatal(err, res)
		}
	}
}
