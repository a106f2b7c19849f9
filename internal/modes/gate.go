package modes

import (
	"context"
	"errors"
	"time"
)

// awaitTimeout is how long operations may have to wait for a change to end.
const awaitTimeout = 3 * time.Second

// Enter begins an operation that no owner decides about: in Redis, or in an owner's place. A change
// waits for it to end. Enter returns false while the mode is being changed, or if it is another
// one; otherwise Leave has to be called once the operation is over.
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
// longer than ctx, or three seconds.
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

// ErrChanged says that an operation has not been carried out, as the mode has changed: it is to be
// begun anew.
var ErrChanged = errors.New("the mode has changed")

// During carries out what no owner decides about in a mode, and returns its error. While the mode
// is being changed it waits for that to end. If fn was not called, as there is another mode, or
// there was a change, it returns [ErrChanged]; if the change does not end in time, what Await does.
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
