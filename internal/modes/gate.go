package modes

import (
	"context"
	"errors"
	"time"
)

// awaitTimeout bounds how long operations wait for a change to end.
const awaitTimeout = 3 * time.Second

// Enter begins an operation that no owner decides about: one in Redis, or in place of an owner. A
// change of mode waits for it to end. Enter returns false while the mode is being changed, or if it
// is not in; otherwise Leave must be called when the operation is over.
func (s *Switch) Enter(in Mode) bool {
	s.inFlight.Add(1) // before looking: prepareLocked pauses first, and looks at this second
	if s.paused.Load() || s.Mode() != in {
		s.inFlight.Add(-1)
		return false
	}
	return true
}

// Leave ends what Enter began.
func (s *Switch) Leave() { s.inFlight.Add(-1) }

// Await waits while the mode is being changed. The error wraps syncer.ErrUnavailable if that takes
// longer than ctx allows, or three seconds.
func (s *Switch) Await(ctx context.Context) error {
	s.resumedMu.Lock()
	resumed := s.resumed
	s.resumedMu.Unlock()
	timer := time.NewTimer(awaitTimeout)
	defer timer.Stop()
	select {
	case <-resumed:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return errChanging
}

// ErrChanged says that an operation was not executed because the mode has changed; it has to start
// over.
var ErrChanged = errors.New("the mode has changed")

// During runs fn, which does something that no owner decides about in a mode, and returns its
// error. It waits while the mode is being changed. If it did not call fn because the mode is
// another one or was changed, it returns [ErrChanged]; if the change does not end in time, it
// returns the error of Await.
func (s *Switch) During(ctx context.Context, in Mode, fn func() error) error {
	if s.Enter(in) {
		defer s.Leave()
		return fn()
	}
	if err := s.Await(ctx); err != nil {
		return err
	}
	return ErrChanged
}

func (s *Switch) pause() {
	s.resumedMu.Lock()
	defer s.resumedMu.Unlock()
	if !s.paused.Swap(true) {
		s.resumed = make(chan struct{})
	}
}

func (s *Switch) resume() {
	s.resumedMu.Lock()
	defer s.resumedMu.Unlock()
	if s.paused.Swap(false) {
		close(s.resumed)
	}
}
