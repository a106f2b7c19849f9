package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"twotier/leaparray"
	"twotier/syncer"
)

// maxHotKeys is how many keys are followed in Redis mode.
const maxHotKeys = 4096

// hotKeys follows the keys that a node in Redis mode is asked about most. It is a sample: when it is full, a new key takes
// the place of the one that was counted least among a few.
type hotKeys struct {
	ladder *leaparray.Ladder

	mu   sync.Mutex
	keys map[string]*hotKey
}

type hotKey struct {
	ns, key string
	total   int64
	counter leaparray.Counter
}

func newHotKeys() *hotKeys {
	l, err := leaparray.NewLadder(leaparray.DefaultLevels()...)
	if err != nil {
		panic(err) // the default ladder is valid
	}
	return &hotKeys{ladder: l, keys: map[string]*hotKey{}}
}

func (h *hotKeys) add(check *Check, now int64) {
	if check.N < 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name := string(check.NS) + "\x00" + string(check.Key)
	k := h.keys[name]
	if k == nil {
		if len(h.keys) >= maxHotKeys {
			h.makeRoom()
		}
		k = &hotKey{ns: cmp.Or(string(check.NS), syncer.DefaultNamespace), key: string(check.Key)}
		h.keys[name] = k
	}
	k.total += check.N
	s := h.ladder.Stamp(now)
	for level := range h.ladder.Len() {
		if _, ok := h.ladder.Add(k.counter, level, s[level], check.N); !ok {
			k.counter = h.ladder.Grow(k.counter, leaparray.Heap{}, level, s[level], check.N)
			h.ladder.Add(k.counter, level, s[level], check.N)
		}
	}
}

// makeRoom drops the least of a few keys, which the map hands out in no order.
func (h *hotKeys) makeRoom() {
	var least string
	seen := 0
	for name, k := range h.keys {
		if least == "" || k.total < h.keys[least].total {
			least = name
		}
		k.total -= k.total / 8 // so that what was hot long ago gives way
		if seen++; seen == 8 {
			break
		}
	}
	delete(h.keys, least)
}

func (h *hotKeys) top(n int, window, now int64) (rows []KeyCount, err error) {
	if window < 1 || window > h.ladder.Span() {
		return nil, &syncer.InvalidError{Check: -1, Limit: -1, Field: "window",
			Detail: fmt.Sprintf("want 1ms to %v", time.Duration(h.ladder.Span())*time.Millisecond)}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.keys {
		e, ok := leaparray.View{Ladder: h.ladder, A: k.counter}.Count(window, now, true)
		if ok && e.Count > 0 {
			rows = append(rows, KeyCount{NS: k.ns, Key: k.key, Count: e.Count})
		}
	}
	slices.SortFunc(rows, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.NS, b.NS), cmp.Compare(a.Key, b.Key))
	})
	return rows[:min(n, len(rows))], nil
}

// topCache answers the same question for a second, as finding the busiest keys means to look at all of them.
type topCache struct {
	mu     sync.Mutex
	at     time.Time
	n      int
	window int64
	rows   []KeyCount
}

const topAge = time.Second

func (t *topCache) get(ctx context.Context, c *syncer.Counter, n int, window int64) ([]KeyCount, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n >= n && t.window == window && time.Since(t.at) < topAge {
		return slices.Clone(t.rows[:min(n, len(t.rows))]), nil
	}
	rows, err := c.Top(ctx, n, window)
	if err != nil {
		return nil, err
	}
	t.at, t.n, t.window, t.rows = time.Now(), n, window, rows
	return slices.Clone(rows), nil
}
