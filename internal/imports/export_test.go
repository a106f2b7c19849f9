package imports

import (
	"context"
	"slices"
)

// Exported for direct tests.
var (
	Milliseconds = milliseconds
	Missing      = missing
	InUse        = inUse
	Merge        = merge
)

// Glob returns the pattern in the language of SCAN.
func (p *Pattern) Glob() string { return p.glob() }

// Expand expands other with the values that p finds in a key.
func (p *Pattern) Expand(key string, other *Pattern) (string, bool) {
	values, ok := p.values(key)
	return other.expand(values), ok
}

// ImportEvents imports the events of one key.
func ImportEvents(ctx context.Context, server Server, events []Event, isTotal bool) (*Report,
	error) {
	m := New(nil, server, Options{})
	m.span = 86_400_000
	k := keyPlan{Mark: Mark{Key: "k"}, from: "rl:k", events: slices.Clone(events),
		isTotal: isTotal}
	m.report.Events = total(events)
	return &m.report, m.importPart(ctx, []keyPlan{k})
}
