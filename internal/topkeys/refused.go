package topkeys

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
)

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
