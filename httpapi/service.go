package httpapi

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
)

// Service executes the requests of a [Server]: it has one method for each kind of call in the API.
// A method must not keep an operation, its keys or its context after it returns, because they are
// views into the request.
//
// Errors come from package syncer: a [twotier.InvalidError] is answered with status 422,
// [twotier.ErrOverload] with 429, [twotier.ErrUnavailable] and [twotier.ErrClosed] with 503, and
// [twotier.ErrUnknownOutcome] with 503 and "outcome":"unknown". An add or acquire that returns its
// context's error has an unknown outcome too. Any other error is a 500.
type Service interface {
	// Do executes one operation.
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
	// DoAll executes operations in order and sets Err in each result.
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
	// Series returns the buckets of a key, oldest first, over a window in milliseconds that ends
	// now, and their width.
	Series(ctx context.Context, ns, key []byte,
		window int64) (bucketMS int64, points []twotier.Point, err error)
	// Top returns up to limit of the keys with the largest counts over a window in milliseconds
	// that ends now, largest first.
	Top(ctx context.Context, limit int, window int64) ([]twotier.KeyCount, error)
	// TopRefused is Top for the keys that refused the most acquires.
	TopRefused(ctx context.Context, limit int, window int64) ([]twotier.KeyCount, error)
	// TopShadowRefused is TopRefused for refusals by rules in shadow.
	TopShadowRefused(ctx context.Context, limit int, window int64) ([]twotier.KeyCount, error)
	// Reset forgets a key.
	Reset(ctx context.Context, ns, key []byte) error
	// Cluster returns the cluster as the node sees it.
	Cluster() cluster.View
	// Survey asks all members for their status and adds it to the view.
	Survey(ctx context.Context, view *cluster.View)
	// Events returns the events that the members have seen, the newest first.
	Events(ctx context.Context) cluster.Events
	// Owners returns, for every partition, the index of its owner in Cluster's members, and the
	// seed of the hash that maps keys to partitions.
	Owners() (owners []int, seed *uint64)
	// SetMode changes how the whole cluster counts.
	SetMode(ctx context.Context, mode cluster.Mode) error
	// Ready returns an error if the node can't answer honestly, and otherwise the reasons why its
	// answers are degraded, if they are.
	Ready() (degraded []string, err error)
	// Stats returns the node's counters.
	Stats() cluster.Stats
}
