package refusals

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"twotier.dev/twotier"
)

const (
	// memory is the longest time a refusal is remembered.
	memory = time.Second
	// longest is the length of the longest key name plus some room, so that the buffer stays on the
	// stack.
	longest = 384
)

// refusal is a remembered refusal. It only applies to an identical operation.
type refusal struct {
	n      int64
	limits []twotier.Limit
	check  twotier.CheckResult
	at     time.Time
}

// Cache holds the refusals that a node remembers. The zero value remembers none until Open is
// called.
type Cache struct {
	kept   *ristretto.Cache[[]byte, *refusal]
	filter *filter
	resets resets
	hits   atomic.Int64
}

// Open makes the cache remember about this many refusals, at least 1. Call it once, before any
// other method.
func (c *Cache) Open(most int) (err error) {
	c.filter = newFilter(most)
	c.resets.seed = maphash.MakeSeed()
	c.kept, err = ristretto.NewCache(&ristretto.Config[[]byte, *refusal]{
		NumCounters: 10 * int64(most), MaxCost: int64(most), BufferItems: 64,
		IgnoreInternalCost: true,
	})
	return err
}

// Close ends the goroutines that Open started.
func (c *Cache) Close() {
	if c.kept != nil {
		c.kept.Close()
	}
}

// Hits returns the number of operations refused from memory.
func (c *Cache) Hits() int64 { return c.hits.Load() }

// canRemember reports whether an operation can be refused from memory, and its refusal remembered.
func (c *Cache) canRemember(op *twotier.Op) bool {
	return c.kept != nil && op.Kind == twotier.Acquire && len(op.Checks) == 1 && op.TS == 0 &&
		!op.CountDenied && !op.Charge && op.Checks[0].Kind == twotier.EventCheck
}

// Record records the result of an operation that another node executed, if it was a refusal. If the
// operation took counts back, earlier refusals are forgotten, because the same operations may pass
// now.
func (c *Cache) Record(op *twotier.Op, res *twotier.Result) {
	if c.kept == nil || len(op.Checks) == 0 {
		return
	}
	check := &op.Checks[0]
	switch {
	case op.TakesBack():
		c.Forget(check)
	case !c.canRemember(op) || res.Allowed || res.Degraded || len(res.Checks) != 1:
	case res.RetryAfter != 0:
		keep := memory
		if res.RetryAfter > 0 {
			keep = min(keep, time.Duration(res.RetryAfter)*time.Millisecond)
		}
		r := &refusal{
			n: check.N, limits: slices.Clone(check.Limits), check: res.Checks[0], at: time.Now(),
		}
		r.check.Limits = slices.Clone(r.check.Limits)
		name := check.AppendName(nil)
		c.kept.SetWithTTL(name, r, 1, keep)
		c.filter.admit(name)
	}
}

// Refuse answers an operation with an earlier refusal, and sets the age of that answer. It reports
// false, and leaves res alone, if there is none.
func (c *Cache) Refuse(op *twotier.Op, res *twotier.Result) bool {
	if !c.canRemember(op) {
		return false
	}
	check := &op.Checks[0]
	var b [longest]byte
	name := check.AppendName(b[:0])
	if !c.filter.mayHave(name) || c.resets.isRecent(name) {
		return false
	}
	r, ok := c.kept.Get(check.AppendName(nil))
	if !ok || check.N != r.n || !slices.Equal(check.Limits, r.limits) {
		return false
	}
	age := time.Since(r.at).Milliseconds()
	retry := r.check.RetryAfter
	if retry > 0 {
		if retry -= age; retry <= 0 {
			return false
		}
	}
	res.Reset()
	res.Source, res.RetryAfter, res.AgeMS = twotier.SourceNear, retry, age
	cr := res.AddCheck()
	cr.Refused, cr.RetryAfter, cr.Limits = true, retry, append(cr.Limits, r.check.Limits...)
	c.hits.Add(1)
	return true
}

// Reset forgets refusals of a key that is being reset. For as long as a reset may take it answers
// no operation on the key: an operation that the owner refuses in the meantime may be allowed
// afterwards.
func (c *Cache) Reset(check *twotier.Check) {
	if c.kept != nil {
		name := check.AppendName(nil)
		c.resets.record(name)
		c.kept.Del(name)
	}
}

// Forget forgets refusals of a key. A refusal that is being recorded concurrently may remain.
func (c *Cache) Forget(check *twotier.Check) {
	if c.kept != nil {
		c.kept.Del(check.AppendName(nil))
	}
}

// filter rules out most keys without remembered refusals. Asking the cache takes an allocation and
// some locks, more than all the other work of forwarding a batched operation
// (BenchmarkNothingRemembered). Of the keys that share a slot, the filter admits the one noted
// last.
type filter struct {
	seed  maphash.Seed
	slots []atomic.Uint32 // the fingerprint of the key noted last; 0 if there is none
}

// newFilter returns a filter with several slots for each of that many keys.
func newFilter(keys int) *filter {
	const slotsPerKey = 4
	return &filter{seed: maphash.MakeSeed(),
		slots: make([]atomic.Uint32, 1<<bits.Len(uint(slotsPerKey*keys-1)))}
}

// slot returns the slot of a key, and the key's fingerprint, which is never 0.
func (f *filter) slot(name []byte) (s *atomic.Uint32, fingerprint uint32) {
	h := maphash.Bytes(f.seed, name)
	return &f.slots[h&uint64(len(f.slots)-1)], uint32(h>>32) | 1
}

// admit admits a key.
func (f *filter) admit(name []byte) {
	s, fingerprint := f.slot(name)
	s.Store(fingerprint)
}

// mayHave reports whether there may be a remembered refusal of a key.
func (f *filter) mayHave(name []byte) bool {
	s, fingerprint := f.slot(name)
	return s.Load() == fingerprint
}

// resetTime is longer than a reset takes plus the time that a refusal noted during it is
// remembered.
const resetTime = 5 * time.Second

// resets records which keys are being reset. Keys that share a slot are not distinguished.
type resets struct {
	seed  maphash.Seed
	until [1024]atomic.Int64 // in Unix nanoseconds
}

func (r *resets) slot(name []byte) *atomic.Int64 {
	return &r.until[maphash.Bytes(r.seed, name)%uint64(len(r.until))]
}

// record records that a key is being reset.
func (r *resets) record(name []byte) { r.slot(name).Store(time.Now().Add(resetTime).UnixNano()) }

// isRecent reports whether a key may have been reset within resetTime.
func (r *resets) isRecent(name []byte) bool {
	return time.Now().UnixNano() < r.slot(name).Load()
}
