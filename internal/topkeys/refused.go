package topkeys

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"twotier.dev/twotier"
)

// Refused tracks the keys with the most refusals, of acquires or of values, as a [Sample] of one
// node's requests. It is exact up to 200 refusals in a tenth of a second. Beyond that it notes a
// random part, which stands for the rest, because noting one costs as much as deciding.
type Refused struct {
	sample *Sample
	now    func() int64
	cache  *Cache
	thin   thinner
}

// NewRefused returns an empty Refused. now returns unix milliseconds.
func NewRefused(now func() int64) (*Refused, error) {
	sample, err := NewSample()
	if err != nil {
		return nil, err
	}
	r := &Refused{sample: sample, now: now}
	r.cache = NewCache(current{r})
	return r, nil
}

// Record counts the refusals among executed operations: an acquire counts 1 for each key that
// refused it, unless it is a dry run. Failed operations don't count.
func (r *Refused) Record(ops []twotier.Op, res []twotier.Result) {
	now := int64(-1)
	for i := range ops {
		op := &ops[i]
		if op.Kind != twotier.Acquire || op.DryRun || res[i].Allowed || res[i].Err != nil {
			continue
		}
		if now < 0 {
			now = r.now()
		}
		r.record(op, &res[i], now)
	}
}

// RecordOne is Record for one operation, which has not failed.
func (r *Refused) RecordOne(op *twotier.Op, res *twotier.Result) {
	if op.Kind == twotier.Acquire && !op.DryRun && !res.Allowed {
		r.record(op, res, r.now())
	}
}

// RecordKey counts a refusal of a key.
func (r *Refused) RecordKey(ns, key []byte) {
	now := r.now()
	if n := r.thin.weight(now); n > 0 {
		r.sample.Add(&twotier.Check{NS: ns, Key: key, N: n}, now)
	}
}

// record counts a refusal, unless the thinner leaves it out.
func (r *Refused) record(op *twotier.Op, res *twotier.Result, now int64) {
	n := r.thin.weight(now)
	if n == 0 {
		return
	}
	for i := range res.Checks {
		if res.Checks[i].Refused {
			one := op.Checks[i]
			one.N = n
			r.sample.Add(&one, now)
		}
	}
}

// Top is TopWithPrefix for all keys.
func (r *Refused) Top(ctx context.Context, n int, window int64) ([]twotier.KeyCount, error) {
	return r.cache.Top(ctx, n, window)
}

// TopWithPrefix implements [Source]. The answer may be a second old.
func (r *Refused) TopWithPrefix(ctx context.Context, prefix string, n int,
	window int64) ([]twotier.KeyCount, error) {
	return r.cache.TopWithPrefix(ctx, prefix, n, window)
}

// current is the source of the cache.
type current struct{ r *Refused }

// TopWithPrefix implements [Source].
func (c current) TopWithPrefix(_ context.Context, prefix string, n int,
	window int64) ([]twotier.KeyCount, error) {
	return c.r.sample.TopWithPrefix(prefix, n, window, c.r.now())
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
