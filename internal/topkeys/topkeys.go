package topkeys

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/leaparray"
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

// MaxSampled is how many keys a [Sample] tracks.
const MaxSampled = 4096

// longestName is the length of the longest key name plus some room, so that the name stays on the
// stack.
const longestName = 384

// Sample tracks the keys with the largest counts, in windows of the default ladder. When it is
// full, a new key replaces the one with the smallest count among a few.
type Sample struct {
	ladder *leaparray.Ladder

	mu     sync.Mutex
	slots  map[string]int // by name
	keys   []sampled
	totals []int64 // of the keys, in all; they fade while the sample is full
	hand   int     // the next slots that may be replaced
}

// sampled is a tracked key.
type sampled struct {
	name    string // as from Check.AppendName
	counter leaparray.Counter
}

// NewSample returns an empty sample.
func NewSample() *Sample {
	l, err := leaparray.NewLadder(0, leaparray.DefaultLevels()...)
	if err != nil {
		panic(err) // it depends on nothing
	}
	return &Sample{ladder: l, slots: map[string]int{}}
}

// Add records that a key was counted at a time in unix milliseconds. It ignores counts that are not
// positive, and bans and leases, which settlements count as well.
func (s *Sample) Add(check *twotier.Check, now int64) {
	if check.N <= 0 || check.Kind != twotier.EventCheck || twotier.IsImported(check.NS) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slotLocked(check)
	s.totals[slot] += check.N
	v := leaparray.View{Ladder: s.ladder, A: s.keys[slot].counter, Now: now}
	v.Put(&v.A, leaparray.Heap{}, v.Cell(now), check.N)
	s.keys[slot].counter = v.A
}

// slotLocked returns the slot of a key, which may replace another key.
func (s *Sample) slotLocked(check *twotier.Check) int {
	var b [longestName]byte
	name := check.AppendName(b[:0])
	slot, ok := s.slots[string(name)]
	if ok {
		return slot
	}
	if len(s.keys) < MaxSampled {
		slot = len(s.keys)
		s.keys, s.totals = append(s.keys, sampled{}), append(s.totals, 0)
	} else {
		slot = s.leastLocked()
		delete(s.slots, s.keys[slot].name)
	}
	s.keys[slot] = sampled{name: string(name)}
	s.slots[s.keys[slot].name], s.totals[slot] = slot, 0
	return slot
}

// choice is the number of keys from which the one to replace is chosen.
const choice = 8

// leastLocked returns the slot with the smallest total of the next few. Their totals share a cache
// line.
func (s *Sample) leastLocked() (least int) {
	least = s.hand
	for slot := s.hand; slot < s.hand+choice; slot++ {
		if s.totals[slot] < s.totals[least] {
			least = slot
		}
		s.totals[slot] -= s.totals[slot] / 8 // so that once hot keys give way
	}
	s.hand = (s.hand + choice) % MaxSampled
	return least
}

// Top returns up to n keys that begin with a prefix and have the largest counts over the window in
// milliseconds that ends now, largest first. A window longer than the ladder is an
// *twotier.InvalidError.
func (s *Sample) Top(prefix string, n int, window,
	now int64) (rows []twotier.KeyCount, err error) {
	if window < 1 || window > s.ladder.Span() {
		return nil, &twotier.InvalidError{Check: -1, Limit: -1, Field: "window",
			Detail: fmt.Sprintf("want 1ms to %v", time.Duration(s.ladder.Span())*time.Millisecond)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.keys {
		k := &s.keys[i]
		ns, key, _ := strings.Cut(k.name, "\x00")
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		e, ok := leaparray.View{Ladder: s.ladder, A: k.counter, Now: now}.Count(window, now, true)
		if ok && e.Count > 0 {
			rows = append(rows, twotier.KeyCount{NS: cmp.Or(ns, twotier.DefaultNamespace), Key: key,
				Count: e.Count})
		}
	}
	return Largest(rows, n), nil
}

// Refused tracks the keys that have one verdict most often, such as refused, as a [Sample] of one
// node's decisions. It is exact up to 200 in a tenth of a second. Beyond that it notes a random
// part, which stands for the rest, because noting one costs as much as deciding.
type Refused struct {
	*Cache
	verdict twotier.Verdict
	sample  *Sample
	now     func() int64
	thin    thinner
}

// NewRefused returns an empty Refused for decisions with a verdict. now returns unix milliseconds.
func NewRefused(v twotier.Verdict, now func() int64) *Refused {
	r := &Refused{verdict: v, sample: NewSample(), now: now}
	r.Cache = NewCache(func(_ context.Context, prefix string, n int,
		window int64) ([]twotier.KeyCount, error) {
		return r.sample.Top(prefix, n, window, now())
	})
	return r
}

// Receives implements [decisions.Sink].
func (r *Refused) Receives(v twotier.Verdict) bool { return v == r.verdict }

// Record counts the key of a decision: once in an acquire, however many rules have the verdict.
func (r *Refused) Record(d *decisions.Decision) {
	if d.Repeated {
		return
	}
	now := r.now()
	if n := r.thin.weight(now); n > 0 {
		r.sample.Add(&twotier.Check{NS: d.NS, Key: d.Key, N: n}, now)
	}
}

const (
	// exact is the number of refusals that are noted in each period, and period its length in
	// milliseconds.
	exact, period = 200, 100
	// share is how many of the other refusals one noted refusal stands for, on average.
	share = 64
)

// thinner chooses the refusals to note. Its zero value is ready to use.
type thinner struct {
	at    atomic.Int64 // the number of the current period
	noted atomic.Int64 // refusals that were noted because they were its first; give or take a few
}

// weight returns how many refusals this one stands for, or 0 if it is not noted.
func (t *thinner) weight(now int64) int64 {
	if at := now / period; t.at.Load() != at {
		t.at.Store(at)
		t.noted.Store(0)
	}
	if t.noted.Load() < exact {
		t.noted.Add(1)
		return 1
	}
	if rand.Uint32()%share != 0 {
		return 0
	}
	return share
}
