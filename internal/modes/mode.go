package modes

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Mode is the way in which a node counts.
type Mode string

// The modes.
const (
	// TwoTier counts in memory and flushes to the store.
	TwoTier Mode = "two-tier"
	// Redis runs every operation as a script in Redis.
	Redis Mode = "redis"
)

// term is a mode and the number of times the cluster has changed it. Of two terms, the later one
// wins.
type term struct {
	mode   Mode
	number uint64
}

func (t *term) tag() string { return string(t.mode) + " " + strconv.FormatUint(t.number, 10) }

// Tag returns the tag that a node in this mode starts with in the ring.
func Tag(mode Mode) string { return (&term{mode: mode}).tag() }

// FromTag returns the mode in a member's tag, if there is one.
func FromTag(tag string) (mode Mode, ok bool) {
	t, ok := parseTag(tag)
	return t.mode, ok
}

func parseTag(tag string) (t term, ok bool) {
	mode, number, found := strings.Cut(tag, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	t = term{Mode(mode), n}
	return t, found && err == nil && (t.mode == TwoTier || t.mode == Redis)
}

// Request asks a node for one step of a change.
type Request struct {
	By    string // the name of the member that changes the mode
	Mode  Mode
	Term  uint64
	Phase Phase
}

// Phase is a step of a change.
type Phase uint8

// The steps of a change. Their numbers are part of the wire format.
const (
	// Prepare: stop deciding, and flush everything to the store.
	Prepare Phase = iota
	// Commit: continue in the new mode.
	Commit
	// Abort: continue in the old mode.
	Abort
)

// mutex is a lock that may be held while waiting. Unlike waiting for a sync.Mutex, waiting for it
// is durably blocking for testing/synctest.
type mutex chan struct{}

// Lock waits until the lock is free. It fails if ctx is done first.
func (m mutex) Lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock releases the lock.
func (m mutex) Unlock() { <-m }

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
