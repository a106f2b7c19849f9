package syncer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
)

// Series returns the buckets of a key over a window of this many milliseconds that ends now, oldest
// first, and their width in milliseconds. allowNonOwner is as in Op.AllowNonOwner.
func (c *Counter) Series(ctx context.Context, ns, key []byte, window int64,
	allowNonOwner bool) (bucketMS int64, points []twotier.Point, err error) {
	err = c.withLoadedKey(ctx, ns, key, window, allowNonOwner, func(k *call) error {
		var ok bool
		bucketMS, ok = k.view(&k.targets[0]).Series(window, k.TS, func(start, n int64) {
			points = append(points, twotier.Point{Start: start, Count: max(0, n)})
		})
		if !ok {
			return twotier.OutOfReach(k.Op, k.targets[0].sp.Ladder, window, k.TS, k.Now)
		}
		return nil
	})
	return bucketMS, points, err
}

// Snapshot returns all buckets of a key, as a copy, and the present time in unix milliseconds.
// allowNonOwner is as in Op.AllowNonOwner.
func (c *Counter) Snapshot(ctx context.Context, ns, key []byte,
	allowNonOwner bool) (v leaparray.View, now int64, err error) {
	err = c.withLoadedKey(ctx, ns, key, 1, allowNonOwner, func(k *call) error {
		v, now = k.view(&k.targets[0]).Clone(), k.TS
		return nil
	})
	return v, now, err
}

// withLoadedKey calls fn with a Count of a key, whose counts are in memory and whose partition is
// locked.
func (c *Counter) withLoadedKey(ctx context.Context, ns, key []byte, window int64,
	allowNonOwner bool, fn func(k *call) error) error {
	op := twotier.Op{Kind: twotier.Count, AllowNonOwner: allowNonOwner,
		Checks: []twotier.Check{{NS: ns, Key: key, Limits: []twotier.Limit{{Window: window}}}}}
	if c.closed.Load() {
		return twotier.ErrClosed
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	if err := k.prepare(&c.directory, &op, c.opt.Now()); err != nil {
		return err
	}
	if err := k.lockWarm(ctx, c.opt.LoadTimeout); err != nil {
		return err
	}
	defer k.unlock()
	if k.targets[0].lacksStoreCounts() {
		return errUnread
	}
	return fn(k)
}

// Top returns up to n keys in memory with the largest counts in the window that ends now, largest
// first. It scans every key, and locks a partition for a few hundred keys at a time.
func (c *Counter) Top(ctx context.Context, n int, window int64) ([]twotier.KeyCount, error) {
	return c.top(ctx, n, window, "", nil)
}

// TopWithPrefix is Top for the keys that begin with a prefix.
func (c *Counter) TopWithPrefix(ctx context.Context, prefix string, n int,
	window int64) ([]twotier.KeyCount, error) {
	return c.top(ctx, n, window, prefix, nil)
}

// TopOf is Top for some namespaces. If the window exceeds a namespace's span, the span is used.
func (c *Counter) TopOf(ctx context.Context, namespaces []string, n int,
	window int64) ([]twotier.KeyCount, error) {
	only := make(map[string]bool, len(namespaces))
	for _, name := range namespaces {
		only[name] = true
	}
	return c.top(ctx, n, window, "", only)
}

// top is TopWithPrefix for the namespaces in only, or for all if it is nil.
func (c *Counter) top(ctx context.Context, n int, window int64, prefix string,
	only map[string]bool) ([]twotier.KeyCount, error) {
	if window < 1 || only == nil && window > c.namespaces.LongestSpan() {
		return nil, &twotier.InvalidError{Check: -1, Limit: -1, Field: "window",
			Detail: fmt.Sprintf(
				"%v is longer than any namespace covers (%v)", twotier.FormatMillis(window),
				twotier.FormatMillis(c.namespaces.LongestSpan()))}
	}
	if n < 1 {
		return nil, &twotier.InvalidError{Check: -1, Limit: -1, Field: "n",
			Detail: fmt.Sprintf("%d, want at least 1", n)}
	}
	t := topScan{n: n, now: c.opt.Now()}
	t.count = func(p *partition, e keys.Entry) int64 {
		if _, key := e.Name(); !bytes.HasPrefix(key, []byte(prefix)) {
			return 0
		}
		return t.countEvents(p, e, window, only)
	}
	return t.scanAll(ctx, c)
}

// TopLeases returns up to n keys in memory with the most open leases, most first. It scans as Top
// does.
func (c *Counter) TopLeases(ctx context.Context, n int) ([]twotier.KeyCount, error) {
	t := topScan{n: n, now: c.opt.Now(), leases: true}
	t.count = t.countLeases
	return t.scanAll(ctx, c)
}

// topScan collects the keys with the largest counts.
type topScan struct {
	n      int
	now    int64
	least  int64 // a count must exceed it to be among the first n
	rows   []twotier.KeyCount
	leases bool // the counts are those of leases of other keys
	// count returns the count of an entry, 0 to leave it out.
	count func(p *partition, e keys.Entry) int64
}

// scanAll scans all partitions.
func (t *topScan) scanAll(ctx context.Context, c *Counter) ([]twotier.KeyCount, error) {
	for i := range c.parts {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for at := 0; t.scan(&c.parts[i], at); at += sweepSlots {
		}
	}
	t.trim(t.n)
	return t.rows, nil
}

func (t *topScan) scan(p *partition, at int) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ownership == notOwned {
		return false // their owners report these keys
	}
	for i := at; i < min(at+sweepSlots, p.keys.Slots()); i++ {
		if e := p.keys.EntryIn(i); e != nil {
			t.add(p, e)
		}
	}
	return at+sweepSlots < p.keys.Slots()
}

// countEvents counts events in a window. Of the namespaces in only, it counts the span if that is
// shorter; if only is nil, it leaves out namespaces with a shorter span.
func (t *topScan) countEvents(p *partition, e keys.Entry, window int64,
	only map[string]bool) int64 {
	sp := p.keys.Namespace(e)
	if only != nil {
		window = min(window, sp.Ladder.Span())
	}
	if sp.Unlisted || window > sp.Ladder.Span() {
		return 0
	}
	est, ok := p.keys.View(e, sp.Ladder, t.now).Count(window, t.now, true)
	if !ok || est.Count <= t.least {
		return 0
	}
	ns, _ := e.Name()
	if only != nil && !only[cmp.Or(string(ns), twotier.DefaultNamespace)] ||
		twotier.IsImported(ns) || e.IsValues() {
		return 0
	}
	return est.Count
}

// countLeases counts open leases.
func (t *topScan) countLeases(p *partition, e keys.Entry) int64 {
	sp := p.keys.Namespace(e)
	if sp.Name != twotier.LeaseNamespace {
		return 0
	}
	return decide.OpenLeases(p.keys.View(e, sp.Ladder, t.now))
}

func (t *topScan) add(p *partition, e keys.Entry) {
	n := t.count(p, e)
	if n <= t.least {
		return
	}
	ns, key := e.Name()
	if t.leases {
		ns, key = twotier.Accompanied(ns, key)
	}
	t.rows = append(t.rows, twotier.KeyCount{Key: string(key), Count: n,
		NS: cmp.Or(string(ns), twotier.DefaultNamespace)})
	if len(t.rows) >= 4*t.n+64 {
		t.trim(t.n)
	}
}

func (t *topScan) trim(n int) {
	slices.SortFunc(t.rows, func(a, b twotier.KeyCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.NS, b.NS),
			cmp.Compare(a.Key, b.Key))
	})
	if len(t.rows) > n {
		t.rows = t.rows[:n]
	}
	if len(t.rows) == n {
		t.least = t.rows[n-1].Count
	}
}

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
