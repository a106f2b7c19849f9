package httpapi

import (
	"context"

	"twotier.dev/twotier/httpapi/cluster"
	"twotier.dev/twotier/syncer"
)

// Service is what a [Server] serves: it has one method for each kind of call in the API. A method
// must not keep an operation, its keys or its context after it returns, because they are views into
// the request.
//
// Errors are those of package syncer: a [syncer.InvalidError] is answered with status 422,
// [syncer.ErrOverload] with 429, [syncer.ErrUnavailable] and [syncer.ErrClosed] with 503, and
// [syncer.ErrUnknownOutcome] with 503 and "outcome":"unknown". An add or acquire that returns its
// context's error has an unknown outcome too. Any other error is a 500.
type Service interface {
	// Do executes one operation.
	Do(ctx context.Context, op *syncer.Op, res *syncer.Result) error
	// DoAll executes operations in order and sets Err in each result.
	DoAll(ctx context.Context, ops []syncer.Op, res []syncer.Result)
	// Series returns the buckets of a key over a window in milliseconds that ends now.
	Series(ctx context.Context, ns, key []byte,
		window int64) (bucketMS int64, points []syncer.Point, err error)
	// Top returns up to limit of the busiest keys over a window in milliseconds, largest first.
	Top(ctx context.Context, limit int, window int64) ([]syncer.KeyCount, error)
	// Reset forgets a key.
	Reset(ctx context.Context, ns, key []byte) error
	// Cluster returns the cluster as the node sees it.
	Cluster() cluster.View
	// Survey has all members say how they are, and adds what they say to a view.
	Survey(ctx context.Context, view *cluster.View)
	// Owners returns the position in Cluster's members of the owner of every partition, and the
	// seed of the hash that assigns keys to them.
	Owners() (owners []int, seed *uint64)
	// SetMode has the whole cluster count in another way.
	SetMode(ctx context.Context, mode cluster.Mode) error
	// Ready returns nil while the node can answer honestly, and whether its answers are degraded.
	Ready() (degraded []string, err error)
	// Stats returns the node's figures.
	Stats() cluster.Stats
}
