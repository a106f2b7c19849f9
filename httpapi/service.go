package httpapi

import (
	"context"

	"twotier.dev/twotier/internal/node"
)

// Service is the node that a [Server] answers for; [node.Node] is the real one. It is as wide as
// the API, one method per kind of call. Operations, their keys and the context are only valid until
// the method returns.
type Service interface {
	// Do executes one operation.
	Do(ctx context.Context, op *node.Op, res *node.Result) error
	// DoAll executes operations in order and sets Err in each result.
	DoAll(ctx context.Context, ops []node.Op, res []node.Result)
	// Series returns the buckets of a key over a window in milliseconds that ends now.
	Series(ctx context.Context, ns, key []byte,
		window int64) (bucketMS int64, points []node.Point, err error)
	// Top returns up to limit of the busiest keys over a window in milliseconds, largest first.
	Top(ctx context.Context, limit int, window int64) ([]node.KeyCount, error)
	// Reset forgets a key.
	Reset(ctx context.Context, ns, key []byte) error
	// Cluster returns the cluster as the node sees it.
	Cluster() node.ClusterView
	// Survey has all members say how they are, and adds what they say to a view.
	Survey(ctx context.Context, view *node.ClusterView)
	// Owners returns the position in Cluster's members of the owner of every partition, and the
	// seed of the hash that assigns keys to them.
	Owners() (owners []int, seed *uint64)
	// SetMode has the whole cluster count in another way.
	SetMode(ctx context.Context, mode node.Mode) error
	// Ready returns nil while the node can answer honestly, and whether its answers are degraded.
	Ready() (degraded []string, err error)
	// Stats returns the node's figures.
	Stats() node.Stats
}
