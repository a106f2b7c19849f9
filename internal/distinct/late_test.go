package distinct_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/syncer"
)

// serial is a store with one thread that takes time for each exchange, and sometimes pauses. An
// exchange that times out is late, unless the store was silent meanwhile.
type serial struct {
	*memory
	each   time.Duration
	thread chan struct{}
	sent   atomic.Int64
}

func (s *serial) Compare(ctx context.Context, list []*distinct.Exchange) {
	before := s.sent.Load()
	for _, x := range list {
		x.Err = nil
		select {
		case <-s.thread:
		case <-ctx.Done():
			if x.Err = ctx.Err(); s.sent.Load() != before {
				x.Err = fmt.Errorf("%w: %w", syncer.ErrLate, ctx.Err())
			}
			continue
		}
		s.memory.Compare(ctx, []*distinct.Exchange{x})
		time.Sleep(s.each)
		s.sent.Add(1)
		s.thread <- struct{}{}
	}
}

// TestACrowdOfColdKeysIsCompared adds to many cold keys that are at their limits, with a store that
// is slow and pauses, but is never silent for two timeouts. No value may pass.
func TestACrowdOfColdKeysIsCompared(t *testing.T) {
	first := seed.First()
	for i := range uint64(20) {
		t.Run(fmt.Sprint("seed=", first+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { coldCrowd(t, first+i) })
		})
	}
}

func coldCrowd(t *testing.T, seed uint64) {
	const n = 60
	rnd := rand.New(rand.NewPCG(seed, 0))
	store := &serial{memory: newMemory(), thread: make(chan struct{}, 1)}
	store.thread <- struct{}{}
	clk := newClock()
	before := engine(t, clk, store, nil, nil, nil)
	for i := range n {
		do(t, before, &distinct.Op{Key: fmt.Append(nil, "full", i), Hashes: values(before, 1, 2)})
	}
	must.Succeed(t, before.Close(t.Context()))
	store.each = time.Duration([]int64{1e6, 1e8, 4e8}[rnd.IntN(3)])
	e := engine(t, clk, store, nil, nil, nil)
	var crowd sync.WaitGroup
	crowd.Go(func() {
		time.Sleep(time.Duration(rnd.Int64N(3e9)))
		<-store.thread
		time.Sleep(1400 * time.Millisecond)
		store.thread <- struct{}{}
	})
	answered := 0
	var mu sync.Mutex
	for i := range n {
		crowd.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			op := &distinct.Op{Key: fmt.Append(nil, "full", i), Hashes: values(e, 3),
				Limits: []twotier.Limit{{Window: 3_600_000, Max: 2}}}
			var res distinct.Result
			err := e.Do(ctx, op, &res, false)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && !errors.Is(err, twotier.ErrUnavailable):
				t.Errorf("full%d: %v", i, err)
			case err == nil && res.Allowed:
				t.Errorf("full%d was let through: %+v", i, res)
			case err == nil:
				answered++
			}
		})
	}
	crowd.Wait()
	if least := min(n, int(3*time.Second/store.each)); answered < least {
		t.Errorf("%d of %d keys were answered, want %d", answered, n, least)
	}
}
