package topkeys

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
)

// maxAge is the greatest age of an answer from a [Cache].
const maxAge = time.Second

// Source searches all its keys. A syncer.Counter is one.
type Source interface {
	// Top returns up to n keys with the largest counts over the window in milliseconds, largest
	// first.
	Top(ctx context.Context, n int, window int64) ([]twotier.KeyCount, error)
}

// Cache keeps the last answer of a source for a second. Concurrent callers wait for one another.
type Cache struct {
	source Source

	mu     sync.Mutex
	at     time.Time
	n      int
	window int64
	rows   []twotier.KeyCount
}

// NewCache returns an empty cache.
func NewCache(source Source) *Cache { return &Cache{source: source} }

// Top is [Source].Top. The answer may be a second old. It belongs to the caller.
func (c *Cache) Top(ctx context.Context, n int, window int64) ([]twotier.KeyCount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n < n || c.window != window || time.Since(c.at) >= maxAge {
		rows, err := c.source.Top(ctx, n, window)
		if err != nil {
			return nil, err
		}
		c.at, c.n, c.window, c.rows = time.Now(), n, window, rows
	}
	return slices.Clone(c.rows[:min(n, len(c.rows))]), nil
}

// Largest sorts rows by count, largest first, and by name where counts are equal, and returns up to
// n of them.
func Largest(rows []twotier.KeyCount, n int) []twotier.KeyCount {
	slices.SortFunc(rows, func(a, b twotier.KeyCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.NS, b.NS),
			cmp.Compare(a.Key, b.Key))
	})
	return rows[:min(n, len(rows))]
}
