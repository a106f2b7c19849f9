package modes

import (
	"context"
	"time"
)

// awaitTimeout is how long operations may have to wait for a change to end.
const awaitTimeout = 3 * time.Second

// Enter begins an operation that no owner decides about: in Redis, or in an owner's place. A change
// waits for it to end. Enter returns false while the mode is being changed, or if it is another one;
// otherwise Leave has to be called once the operation is over.
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
