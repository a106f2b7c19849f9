package limiter

import "context"

// Limit is one rule: at most Max events in any Window, which is in milliseconds.
type Limit struct {
	Window, Max int64
}

// Check is one key with its rules. N is the number of events that want to pass, at least 1.
type Check struct {
	Key    string
	N      int64
	Limits []Limit
}

// Limiter decides whether events may pass and remembers those that did.
type Limiter interface {
	// Name is how tables call it.
	Name() string
	// AcquireAll admits the events of all checks at the time ts, in unix milliseconds, if every
	// rule of every check holds, and otherwise counts nothing. Events are given in the order of
	// their times.
	AcquireAll(ctx context.Context, checks []Check, ts int64) (allowed bool, err error)
}

// Call is one decision of several.
type Call struct {
	Checks []Check
	TS     int64
}

// Batcher is a Limiter that can be asked for many decisions in one round trip.
type Batcher interface {
	Limiter
	// AcquireEach decides calls one by one, in order, and returns how many were admitted.
	AcquireEach(ctx context.Context, calls []Call) (admitted int, err error)
}

// Acquire is AcquireAll for a single key.
func Acquire(
	ctx context.Context, l Limiter, key string, n, ts int64, limits []Limit,
) (bool, error) {
	return l.AcquireAll(ctx, []Check{{Key: key, N: n, Limits: limits}}, ts)
}

// Batching is l as one that can be asked for many decisions in one round trip; nil if it takes one
// at a time.
func Batching(l Limiter) Batcher {
	b, _ := l.(Batcher)
	return b
}
