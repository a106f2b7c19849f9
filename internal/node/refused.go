package node

import (
	"errors"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/events"
)

// overloads counts the operations refused because of a node's limits, by limit. The counter itself
// counts operations that wait in vain because the store is too far behind.
type overloads struct{ full, keys, queues atomic.Int64 }

// count counts an error that reports a limit reached.
func (o *overloads) count(err error) {
	switch {
	case !errors.Is(err, twotier.ErrOverload), errors.Is(err, twotier.ErrBehind):
	case errors.Is(err, twotier.ErrMaxKeys):
		o.keys.Add(1)
	case errors.Is(err, twotier.ErrFull):
		o.full.Add(1)
	default:
		o.queues.Add(1)
	}
}

// list returns the number of refusals by reason.
func (o *overloads) list(behind int64) []events.Refused {
	return []events.Refused{
		{Why: "Redis is too far behind (--max-lag)", Total: behind},
		{Why: "the memory for counts is full (--max-memory)", Total: o.full.Load()},
		{Why: "a namespace has as many keys as it may (max_keys)", Total: o.keys.Load()},
		{Why: "too much waits for Redis or another node", Total: o.queues.Load()},
	}
}
