package node

import (
	"slices"
	"sync/atomic"
	"time"

	"twotier/internal/near"
	"twotier/syncer"
)

// A key that was refused by its owner on another node is refused here, without asking again, until it could pass or denialTime is up:
// only counts that are taken back, reset or given up by a reservation could let it pass earlier.
const (
	denialTime = time.Second
	maxDenials = 1 << 14
)

// denial is a refusal.
type denial struct {
	n      int64
	limits []Limit
	check  CheckResult
	at     time.Time
}

// denials are those that are remembered.
type denials struct {
	cache *near.Cache[*denial]
	hits  atomic.Int64
}

func (d *denials) open() (err error) {
	d.cache, err = near.New[*denial](maxDenials)
	return err
}

func (d *denials) close() {
	if d.cache != nil {
		d.cache.Close()
	}
}

// remembers reports whether an operation can be refused, or its refusal be remembered.
func (d *denials) remembers(op *Op) bool {
	return d.cache != nil && op.Kind == syncer.Acquire && len(op.Checks) == 1 && op.TS == 0 && !op.CountDenied
}

// note remembers what came of an operation that another node carried out.
func (d *denials) note(op *Op, res *Result) {
	if d.cache == nil || len(op.Checks) != 1 {
		return
	}
	c := &op.Checks[0]
	var b [384]byte
	switch {
	case c.N < 0:
		d.cache.Forget(c.AppendName(b[:0]))
	case !d.remembers(op) || res.Allowed || res.Degraded || len(res.Checks) != 1:
	case res.RetryAfter != 0:
		keep := denialTime
		if res.RetryAfter > 0 {
			keep = min(keep, time.Duration(res.RetryAfter)*time.Millisecond)
		}
		v := &denial{n: c.N, limits: slices.Clone(c.Limits), check: res.Checks[0], at: time.Now()}
		v.check.Limits = slices.Clone(v.check.Limits)
		d.cache.Put(c.AppendName(b[:0]), v, keep)
	}
}

// refuse refuses an operation as it was refused before, and reports false if that is not known.
func (d *denials) refuse(op *Op, res *Result) bool {
	if !d.remembers(op) {
		return false
	}
	c := &op.Checks[0]
	var b [384]byte
	v, ok := d.cache.Get(c.AppendName(b[:0]))
	if !ok || c.N != v.n || !slices.Equal(c.Limits, v.limits) {
		return false
	}
	age := time.Since(v.at).Milliseconds()
	retry := v.check.RetryAfter
	if retry > 0 {
		if retry -= age; retry <= 0 {
			return false
		}
	}
	res.Reset()
	res.Source, res.RetryAfter, res.AgeMS = syncer.SourceNear, retry, age
	r := res.AddCheck()
	r.Refused, r.RetryAfter, r.Limits = true, retry, append(r.Limits, v.check.Limits...)
	d.hits.Add(1)
	return true
}

// forget forgets that a key was refused.
func (d *denials) forget(c *Check) {
	if d.cache != nil {
		var b [384]byte
		d.cache.Forget(c.AppendName(b[:0]))
	}
}
