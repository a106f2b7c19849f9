package syncer

import (
	"cmp"
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
)

// SampleOf returns a uniform sample of up to n keys in memory of a namespace that count events in
// the window that ends now, and the number of all such keys. The Count of each key is its rank, and
// the keys have the n largest ranks: of the samples of several nodes, the keys with the largest
// ranks are a uniform sample of the keys of all nodes. It scans as Top does. If the window exceeds
// the namespace's span, the span is used.
func (c *Counter) SampleOf(ctx context.Context, namespace string, n int,
	window int64) (sample []twotier.KeyCount, total int64, err error) {
	only := map[string]bool{namespace: true}
	t := topScan{n: n, now: c.opt.Now()}
	t.count = func(p *partition, e keys.Entry) int64 {
		if ns, _ := e.Name(); cmp.Or(string(ns), twotier.DefaultNamespace) != namespace {
			return 0
		}
		counted := topScan{now: t.now}
		if counted.countEvents(p, e, window, only) == 0 {
			return 0
		}
		total++
		_, key := e.Name()
		return rankOf(key)
	}
	sample, err = t.scanAll(ctx, c)
	return sample, total, err
}

// rankOf returns a number above 0 that is the same on all nodes and unrelated to the key's
// partition, its events and the other keys: the hash FNV-1a, mixed as MurmurHash3 does at its end.
func rankOf(key []byte) int64 {
	h := uint64(14695981039346656037)
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return int64((h^h>>33)>>1 | 1)
}
