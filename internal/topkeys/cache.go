package topkeys

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier"
)

// maxAge is the greatest age of an answer from a [Cache].
const maxAge = time.Second

// Source searches all its keys. A syncer.Counter is one.
type Source interface {
	// TopWithPrefix returns up to n keys that begin with a prefix and have the largest counts over
	// the window in milliseconds, largest first.
	TopWithPrefix(ctx context.Context, prefix string, n int,
		window int64) ([]twotier.KeyCount, error)
}

// Cache keeps the last answers of a source for a second: one about all keys, and one about the keys
// with a prefix. Concurrent callers wait for one another.
type Cache struct {
	source Source

	mu   sync.Mutex
	all  answer
	some answer
}

// answer is an answer of a source.
type answer struct {
	at     time.Time
	prefix string
	n      int
	window int64
	rows   []twotier.KeyCount
}

// NewCache returns an empty cache.
func NewCache(source Source) *Cache { return &Cache{source: source} }

// Top is TopWithPrefix for all keys.
func (c *Cache) Top(ctx context.Context, n int, window int64) ([]twotier.KeyCount, error) {
	return c.TopWithPrefix(ctx, "", n, window)
}

// TopWithPrefix implements [Source]. The answer may be a second old. It belongs to the caller.
func (c *Cache) TopWithPrefix(ctx context.Context, prefix string, n int,
	window int64) ([]twotier.KeyCount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.all
	if prefix != "" {
		a = &c.some
	}
	if a.n < n || a.window != window || a.prefix != prefix || time.Since(a.at) >= maxAge {
		rows, err := c.source.TopWithPrefix(ctx, prefix, n, window)
		if err != nil {
			return nil, err
		}
		*a = answer{time.Now(), prefix, n, window, rows}
	}
	return slices.Clone(a.rows[:min(n, len(a.rows))]), nil
}

// WithPrefix keeps the rows whose keys begin with a prefix. It reuses the memory of rows.
func WithPrefix(rows []twotier.KeyCount, prefix string) []twotier.KeyCount {
	return slices.DeleteFunc(rows, func(row twotier.KeyCount) bool {
		return !strings.HasPrefix(row.Key, prefix)
	})
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
