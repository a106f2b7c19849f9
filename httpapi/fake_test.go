package httpapi_test

import (
	"context"
	"sync"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/testing/extended"
	"twotier.dev/twotier/internal/verdicts"
)

var _ httpapi.Service = (*fake)(nil)

// fake is a service that never forgets, so all windows have the same count. It records its last
// calls.
type fake struct {
	// err is returned by every method that can fail; fault is called first.
	err   error
	fault func(ctx context.Context) error

	mu       sync.Mutex
	counts   map[string]*int64
	last     twotier.Op
	prefix   string // of the last list of keys
	points   []twotier.Point
	top      map[string][]twotier.KeyCount // by the order of the list
	open     twotier.OpenLeases
	stats    cluster.Stats
	view     cluster.View
	events   cluster.Events
	ready    error
	source   twotier.Source
	soft     bool              // degraded
	values   *extended.Service // executes operations with values; nil until there is one
	refusals *refusallog.Log   // nil if none are recorded
}

// counters returns counters that record refusals as f does.
func (f *fake) counters() *verdicts.Counters {
	if f.refusals == nil {
		return verdicts.New()
	}
	return verdicts.New(f.refusals)
}

func newFake() *fake { return &fake{counts: map[string]*int64{}, source: twotier.SourceMemory} }

func (f *fake) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if f.fault != nil {
		if err := f.fault(ctx); err != nil {
			return err
		}
	}
	if f.err != nil {
		return f.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = *op
	if len(op.Values) > 0 {
		return f.doValues(ctx, op, res)
	}
	res.Source, res.Degraded, res.Allowed, res.AgeMS = f.source, f.soft, true, 7
	for i := range op.Checks {
		f.check(op, &op.Checks[i], res)
	}
	count := op.Kind == twotier.Add ||
		op.Kind == twotier.Acquire && (res.Allowed || op.CountsRefused(res))
	for i := range op.Checks {
		c := &op.Checks[i]
		n := f.countOf(c.Key)
		if count {
			n += c.N
		}
		if count && !op.DryRun {
			f.set(c.Key, n)
		}
		if op.Kind == twotier.Count || count {
			for k := range res.Checks[i].Limits {
				l := &res.Checks[i].Limits[k]
				l.Count, l.Lo, l.Hi = n, n, n+lent(c.Key)
			}
		}
	}
	return nil
}

// lent returns how much of a key is lent to other nodes.
func lent(key []byte) int64 {
	if string(key) == "hot" {
		return 5
	}
	return 0
}

// set stores a count without allocating if the key is known.
func (f *fake) set(key []byte, n int64) {
	if old, ok := f.counts[string(key)]; ok {
		*old = n
		return
	}
	fresh := new(int64) // not &n, which would allocate for known keys too
	*fresh = n
	f.counts[string(key)] = fresh
}

// check decides about one check.
func (f *fake) check(op *twotier.Op, c *twotier.Check, res *twotier.Result) {
	out := res.AddCheck()
	n := f.countOf(c.Key)
	for _, l := range c.Limits {
		r := twotier.LimitResult{Window: l.Window, Max: l.Max, Period: l.Period, Count: n, Lo: n,
			Hi: n + lent(c.Key), BucketMS: 1000}
		needed := c.N
		if op.Kind == twotier.Acquire {
			needed = c.Needed(0)
		}
		if op.Kind != twotier.Count && n+needed > l.Max {
			r.Refused, out.Refused, res.Allowed = true, true, false
			out.RetryAfter = max(out.RetryAfter, 1500)
			if c.N > l.Max {
				out.RetryAfter = -1
			}
		}
		out.Limits = append(out.Limits, r)
	}
	if out.RetryAfter < 0 || res.RetryAfter < 0 {
		res.RetryAfter = -1
	} else {
		res.RetryAfter = max(res.RetryAfter, out.RetryAfter)
	}
}

func (f *fake) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Err = f.Do(ctx, &ops[i], &res[i])
	}
}

func (f *fake) Series(ctx context.Context, ns, key []byte,
	window int64) (int64, []twotier.Point, error) {
	return 1000, f.points, f.err
}

func (f *fake) Top(_ context.Context, by, prefix string, limit int,
	_ int64) ([]twotier.KeyCount, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prefix = prefix
	return f.top[by][:min(limit, len(f.top[by]))], f.err
}

func (f *fake) OpenLeases(_ context.Context, ns, key []byte) (twotier.OpenLeases, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = twotier.Op{Checks: []twotier.Check{{NS: ns, Key: key}}}
	return f.open, f.err
}

func (f *fake) Reset(ctx context.Context, ns, key []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.counts, string(key))
	return f.err
}

func (f *fake) Cluster() cluster.View { return f.view }
func (f *fake) Survey(_ context.Context, view *cluster.View) {
	view.Members = append([]cluster.Member{}, view.Members...)
	for i := range view.Members {
		view.Members[i].Status = &cluster.Status{Keys: 7, RingVersion: 9}
	}
}
func (f *fake) Owners() ([]int, *uint64)              { return []int{0, 1, 0}, new(uint64) }
func (f *fake) Events(context.Context) cluster.Events { return f.events }
func (f *fake) SetMode(_ context.Context, mode cluster.Mode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.Mode = mode
	return f.err
}
func (f *fake) Ready() (degraded []string, err error) {
	if f.soft {
		degraded = []string{"Redis: is \"away\"", "time"}
	}
	return degraded, f.ready
}
func (f *fake) Stats() cluster.Stats { return f.stats }

func (f *fake) countOf(key []byte) int64 {
	if n, ok := f.counts[string(key)]; ok {
		return *n
	}
	return 0
}

func (f *fake) get(key string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.countOf([]byte(key))
}
