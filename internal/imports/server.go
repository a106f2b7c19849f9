package imports

import (
	"context"
	"iter"
)

// Mark names the counter of the events that a source has contributed to a key.
type Mark struct{ NS, Key, Source string }

// Op counts N events of a key and of its mark at a time, if the mark then has at most Max events.
type Op struct {
	Mark
	TS, N, Max int64

	from string // the key in Redis
}

// Probe asks for the number of events of a mark in any window that contains a time.
type Probe struct {
	Mark
	TS int64
}

// Bucket is a stretch of time and the number of events in it.
type Bucket struct{ Start, Width, N int64 }

// Server counts events. All times are unix milliseconds.
type Server interface {
	// Span returns how far back a namespace reaches, in milliseconds.
	Span(ctx context.Context, ns string) (int64, error)
	// Marked answers probes, in order.
	Marked(ctx context.Context, span int64, probes []Probe) ([]int64, error)
	// Series returns the buckets of a mark over a window that ends now.
	Series(ctx context.Context, m Mark, window int64) ([]Bucket, error)
	// Count executes operations in order, and calls counted with each one that has counted. It
	// reports whether all of them have, and if not, why the first that failed has, which may be
	// nil.
	Count(ctx context.Context, span int64, ops iter.Seq[Op], counted func(*Op)) (all bool, why,
		err error)
}
