package modes

import (
	"context"
	"errors"
	"time"
)

// awaitTimeout bounds how long operations wait for a change to end.
const awaitTimeout = 3 * time.Second

// Enter begins an operation that no owner decides about: in Redis, or in place of an owner. A
// change of mode waits for the operation's end. Enter returns false while the mode is being
// changed, or if the mode is a different one; otherwise Leave must be called at the end of the
// operation.
func (s *Switch) Enter(in Mode) bool {
	s.inFlight.Add(1) // first: prepareLocked pauses before it reads inFlight
	if s.paused.Load() || s.Mode() != in {
		s.inFlight.Add(-1)
		return false
	}
	return true
}

// Leave ends the operation begun by Enter.
func (s *Switch) Leave() { s.inFlight.Add(-1) }

// Await waits while the mode is being changed. The error wraps twotier.ErrUnavailable if that takes
// longer than ctx allows, or than three seconds.
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

// ErrChanged means that an operation was not executed because the mode has changed; it has to start
// over.
var ErrChanged = errors.New("the mode has changed")

// During runs fn, an operation that no owner decides about, in a mode and returns its error. It
// waits while the mode is being changed. If the mode is a different one or has been changed, During
// does not call fn and returns [ErrChanged]; if the change does not end in time, it returns the
// error of Await.
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
