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

// Call is one decision: whether the events of all checks may pass at the time TS, in unix
// milliseconds.
type Call struct {
	Checks []Check
	TS     int64
}

// Limiter decides whether events may pass and remembers those that did.
type Limiter interface {
	// Name is how tables call it.
	Name() string
	// Decide decides calls in order, as one by one: each is admitted if every rule of every check
	// holds, and otherwise counts nothing. It returns how many were. Calls are given in the order
	// of their times.
	Decide(ctx context.Context, calls []Call) (admitted int, err error)
}

// Ask asks for one decision.
func Ask(ctx context.Context, l Limiter, c Call) (bool, error) {
	admitted, err := l.Decide(ctx, []Call{c})
	return admitted == 1, err
}

// oneByOne is Decide of what takes one decision at a time.
func oneByOne(calls []Call, decide func(Call) (bool, error)) (admitted int, err error) {
	for _, c := range calls {
		ok, err := decide(c)
		if err != nil {
			return admitted, err
		}
		if ok {
			admitted++
		}
	}
	return admitted, nil
}
