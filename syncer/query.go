package syncer

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
)

// Series returns the buckets of a key over a window of this many milliseconds that ends now, oldest
// first, and their width in milliseconds. allowNonOwner is as in Op.AllowNonOwner.
func (c *Counter) Series(ctx context.Context, ns, key []byte, window int64,
	allowNonOwner bool) (bucketMS int64, points []twotier.Point, err error) {
	err = c.withLoadedKey(ctx, ns, key, window, allowNonOwner, func(k *call) error {
		var ok bool
		bucketMS, ok = k.view(&k.targets[0]).Series(window, k.ts, func(start, n int64) {
			points = append(points, twotier.Point{Start: start, Count: max(0, n)})
		})
		if !ok {
			return k.reachError(&k.targets[0], &k.op.Checks[0].Limits[0])
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
		v, now = k.view(&k.targets[0]).Clone(), k.ts
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
	return c.top(ctx, n, window, nil)
}

// TopOf is Top for some namespaces. If the window exceeds a namespace's span, the span is used.
func (c *Counter) TopOf(ctx context.Context, namespaces []string, n int,
	window int64) ([]twotier.KeyCount, error) {
	only := make(map[string]bool, len(namespaces))
	for _, name := range namespaces {
		only[name] = true
	}
	return c.top(ctx, n, window, only)
}

// top is Top for the namespaces in only, or for all if it is nil.
func (c *Counter) top(ctx context.Context, n int, window int64,
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
	t := topScan{n: n, window: window, now: c.opt.Now(), only: only}
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

// topScan collects the keys with the largest counts.
type topScan struct {
	n           int
	window, now int64
	least       int64 // a count must exceed it to be among the first n
	rows        []twotier.KeyCount
	only        map[string]bool // namespaces; nil for all
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

func (t *topScan) add(p *partition, e keys.Entry) {
	sp, window := p.keys.Namespace(e), t.window
	if t.only != nil {
		window = min(window, sp.Ladder.Span())
	}
	if sp.Unlisted || window > sp.Ladder.Span() {
		return
	}
	v := p.keys.View(e, sp.Ladder, t.now)
	est, ok := v.Count(window, t.now, true)
	if !ok || est.Count <= t.least {
		return
	}
	ns, key := e.Name()
	row := twotier.KeyCount{NS: twotier.DefaultNamespace, Key: string(key), Count: est.Count}
	if len(ns) > 0 {
		row.NS = string(ns)
	}
	if t.only != nil && !t.only[row.NS] {
		return
	}
	t.rows = append(t.rows, row)
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
