package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// serialStore is a store with one thread, like Redis: it serves one round after the other and takes
// time for each bucket that it sends. A round that was sent is served even if its sender no longer
// waits. It is never down, but may pause. A round that is unanswered by the deadline of its
// exchange is late, unless the store sent nothing at all meanwhile.
type serialStore struct {
	*embedded.Store
	each   atomic.Int64 // nanoseconds for a bucket
	thread chan struct{}
	sent   atomic.Int64 // how often anything was sent
	busy   atomic.Bool  // it is sending
	late   atomic.Int64 // rounds that load and were not answered in time
}

func newSerialStore(t *testing.T, inner *embedded.Store, each time.Duration) *serialStore {
	s := &serialStore{Store: inner, thread: make(chan struct{}, 1)}
	s.each.Store(int64(each))
	s.thread <- struct{}{}
	t.Cleanup(func() { <-s.thread }) // it still serves abandoned rounds
	return s
}

var errSilent = errors.New("i/o timeout")

func (s *serialStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	before := s.sent.Load()
	for _, r := range rounds {
		if !s.serve(ctx, r) {
			if r.Aside {
				s.late.Add(1)
			}
			if r.Err = errSilent; s.busy.Load() || s.sent.Load() != before {
				r.Err = fmt.Errorf("%w: %w", syncer.ErrLate, errSilent)
			}
		}
	}
}

// serve serves a round, and reports whether that was done in time.
func (s *serialStore) serve(ctx context.Context, r *syncer.Round) bool {
	select {
	case <-s.thread:
	case <-ctx.Done():
		return false
	}
	if ctx.Err() != nil {
		s.thread <- struct{}{}
		return false
	}
	s.Store.Exchange(ctx, []*syncer.Round{r})
	n := int64(1)
	for i := range r.Keys {
		n += 1 + int64(len(r.Keys[i].Loaded))
	}
	s.busy.Store(true)
	done := make(chan struct{})
	go func() {
		time.Sleep(time.Duration(n * s.each.Load()))
		s.busy.Store(false)
		s.sent.Add(1)
		close(done)
		s.thread <- struct{}{}
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// pause makes the store send nothing for a while.
func (s *serialStore) pause(d time.Duration) {
	<-s.thread
	time.Sleep(d)
	s.thread <- struct{}{}
}
