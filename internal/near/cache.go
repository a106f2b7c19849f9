package near

import (
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// Cache keeps values for a time, at most so many. Its methods may be called at the same time.
type Cache[V any] struct{ c *ristretto.Cache[[]byte, V] }

// New returns a cache for about this many values, at least 1.
func New[V any](values int64) (*Cache[V], error) {
	c, err := ristretto.NewCache(&ristretto.Config[[]byte, V]{
		NumCounters: 10 * max(values, 1), MaxCost: max(values, 1), BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, err
	}
	return &Cache[V]{c}, nil
}

// Put keeps a value for a time, or doesn't: while many are put it drops some, and a value may take a moment to be found.
func (c *Cache[V]) Put(key []byte, v V, keep time.Duration) { c.c.SetWithTTL(key, v, 1, keep) }

// Get returns a value that is kept.
func (c *Cache[V]) Get(key []byte) (V, bool) { return c.c.Get(key) }

// Forget drops a value. One that is being put at the same moment may remain.
func (c *Cache[V]) Forget(key []byte) { c.c.Del(key) }

// Close ends the cache's goroutines.
func (c *Cache[V]) Close() { c.c.Close() }
