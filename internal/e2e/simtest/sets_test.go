package simtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// sets are the distinct values of one key in the simulated Redis.
type sets struct {
	version string
	head    []byte
	chunks  map[int][]byte
}

// countValues makes the process count distinct values, if the schedule has any.
func (p *proc) countValues(born uint64) (err error) {
	if !p.w.plan.values {
		return nil
	}
	p.values, err = distinct.New(distinct.Options{
		Store: &valueStore{p: p, faults: faultstore.Random(p.w.seed+born+1<<32, p.w.plan.mix),
			rnd: rand.New(rand.NewPCG(p.w.seed, 2000+born))},
		Now: p.clock.Now, Placement: p.w.placement(), FlushInterval: p.w.plan.interval,
		VerifyInterval: cmp.Or(p.w.plan.verify, time.Second), Logger: p.w.logger(p.id),
		Namespaces: map[string]distinct.Namespace{twotier.DefaultNamespace: {Ladder: p.w.ladders[0],
			OnCold: syncer.OnColdDeny}},
	})
	return err
}

// valueStore gives one process access to the distinct values of the simulated Redis.
type valueStore struct {
	p      *proc
	faults func(*syncer.Round) faultstore.Fault
	rnd    *rand.Rand
}

// Compare implements distinct.Store.
func (s *valueStore) Compare(ctx context.Context, list []*distinct.Exchange) {
	failed := s.p.toRedis(ctx)
	for _, x := range list {
		if x.Err = failed; failed == nil {
			s.exchange(x)
		}
	}
	time.Sleep(time.Microsecond) // lets overlapping calls overlap
	if unheard := s.p.toRedis(ctx); unheard != nil {
		for _, x := range list {
			x.Err = unheard
		}
	}
}

// exchange makes one exchange, or lets it fail.
func (s *valueStore) exchange(x *distinct.Exchange) {
	// The store locks w.atomic while it is locked itself, so ask it first.
	w, down, full := s.p.w, s.p.store.Down(), s.p.store.Full()
	w.atomic.Lock()
	defer w.atomic.Unlock()
	fault, writes := faultstore.None, x.Version != ""
	switch {
	case down:
		fault = faultstore.RequestLost
	case full && writes:
		fault = faultstore.WriteRefused
	case !w.healed.Load():
		fault = s.faults(nil)
	}
	c := *x // who gets no answer goes on with its own
	switch x.Err = faultstore.ErrLost; fault {
	case faultstore.ReplyLost:
		w.compare(&c)
	case faultstore.RequestLost:
	case faultstore.WriteRefused:
		x.Err = fmt.Errorf("full: %w", syncer.ErrRefused)
	case faultstore.Refused:
		x.Err = fmt.Errorf("not now: %w", syncer.ErrNotApplied)
	case faultstore.Late:
		time.AfterFunc(time.Duration(s.rnd.Int64N(int64(3*time.Second))), func() {
			w.atomic.Lock()
			defer w.atomic.Unlock()
			w.compare(&c)
		})
	default:
		x.Err = nil
		w.compare(x)
	}
}

// compare does the work of Redis for one exchange.
func (w *world) compare(x *distinct.Exchange) {
	name := string(x.Key)
	k := w.sets[name]
	if k == nil {
		k = &sets{chunks: map[int][]byte{}}
	}
	expected, head, chunks := k.version == x.Expect, x.Head, x.Chunks
	x.Err, x.Found = nil, k.version
	switch {
	case !expected:
		x.Head, x.Chunks = k.head, nil
		for i, data := range k.chunks {
			x.Chunks = append(x.Chunks, distinct.Chunk{Index: i, Data: data})
		}
		return
	case x.Version == "":
		return
	}
	k.version, k.head = x.Version, head
	for _, c := range chunks {
		if k.chunks[c.Index] = c.Data; len(c.Data) == 0 {
			delete(k.chunks, c.Index)
		}
	}
	if w.sets == nil {
		w.sets = map[string]*sets{}
	}
	w.sets[name] = k
	w.journal.note("redis: %s has version %s after %s, %d chunks changed", name, x.Version,
		x.Expect, len(chunks))
}

// copySets returns a copy of the distinct values in Redis. w.atomic is held.
func (w *world) copySets() map[string]*sets {
	all := map[string]*sets{}
	for name, k := range w.sets {
		all[name] = &sets{k.version, k.head, maps.Clone(k.chunks)}
	}
	return all
}

// valuesOf returns the values of a key in Redis. w.atomic is held.
func (w *world) valuesOf(key string) *leaparray.Values { return w.sets[key].values(w) }

// values returns the values of a key, none if there is no key.
func (k *sets) values(w *world) *leaparray.Values {
	v := new(leaparray.Values)
	if k == nil {
		return v
	}
	must.Succeed(w.t, v.MergeHead(k.head))
	for _, data := range k.chunks {
		must.Succeed(w.t, v.MergeChunk(data, math.MaxInt))
	}
	return v
}

// hasValue reports whether a value is among some.
func hasValue(v *leaparray.Values, hash uint64) bool {
	return countValues(v, hash) == countValues(v)
}

// countValues returns how many different values there are, together with some.
func countValues(v *leaparray.Values, more ...uint64) int64 {
	return v.Count(0, math.MaxInt64, more).Count
}

// TestAResetThatIsHalfDone resets a key in Redis mode. Redis forgets its counts, and refuses to
// forget its distinct values: the error does not claim that nothing was done.
func TestAResetThatIsHalfDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWith(t, func(p *plan) { p.values = true })
		defer w.shutDown()
		p := w.alive()[0]
		key := w.keysOf(p, "k", 1)[0]
		if _, err := p.do(adding(key), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, p.setMode(cluster.Redis))
		p.store.SetFull(true)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := p.node.Reset(ctx, nil, []byte(key))
		if !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("the reset says %v", err)
		}
		p.store.SetFull(false)
		if n, err := p.read(key, dayMS); n != 0 || err != nil {
			t.Errorf("it has counted %d: %v", n, err)
		}
	})
}
