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

// Source returns up to n keys that begin with a prefix and have the largest counts over the window
// in milliseconds, largest first. It searches all its keys.
type Source func(ctx context.Context, prefix string, n int,
	window int64) ([]twotier.KeyCount, error)

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

// Top is a [Source]. The answer may be a second old. It belongs to the caller.
func (c *Cache) Top(ctx context.Context, prefix string, n int,
	window int64) ([]twotier.KeyCount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.all
	if prefix != "" {
		a = &c.some
	}
	if a.n < n || a.window != window || a.prefix != prefix || time.Since(a.at) >= maxAge {
		rows, err := c.source(ctx, prefix, n, window)
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

// SumByKey adds up the counts of rows of the same key. It reuses the memory of rows.
func SumByKey(rows []twotier.KeyCount) []twotier.KeyCount {
	return mergeByKey(rows, func(a, b int64) int64 { return a + b })
}

// MaxByKey keeps the largest count of rows of the same key. It reuses the memory of rows.
func MaxByKey(rows []twotier.KeyCount) []twotier.KeyCount {
	return mergeByKey(rows, func(a, b int64) int64 { return max(a, b) })
}

// mergeByKey merges the counts of rows of the same key.
func mergeByKey(rows []twotier.KeyCount, merge func(a, b int64) int64) []twotier.KeyCount {
	type name struct{ ns, key string }
	at := map[name]int{}
	merged := rows[:0]
	for _, row := range rows {
		of := name{row.NS, row.Key}
		if i, ok := at[of]; ok {
			merged[i].Count = merge(merged[i].Count, row.Count)
			continue
		}
		at[of] = len(merged)
		merged = append(merged, row)
	}
	return merged
}
