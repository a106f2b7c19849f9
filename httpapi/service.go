package httpapi

import (
	"context"

	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
)

// Service executes the requests of a [Server].
// A method must not keep an operation, its keys or its context after it returns, because they are
// views into the request.
//
// Errors come from package syncer: a [twotier.InvalidError] is answered with status 422,
// [twotier.ErrOverload] with 429, [twotier.ErrUnavailable] and [twotier.ErrClosed] with 503, and
// [twotier.ErrUnknownOutcome] with 503 and "outcome":"unknown". An add or acquire that returns its
// context's error has an unknown outcome too. Any other error is a 500.
type Service interface {
	ask.Service
	ask.Keys
	ask.Resetter
	Members
	Health
}

// Members reports on the cluster and changes its mode.
type Members interface {
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
}

// Health reports on the node.
type Health interface {
	// Ready returns an error if the node can't answer honestly, and otherwise the reasons why its
	// answers are degraded, if they are.
	Ready() (degraded []string, err error)
	// Stats returns the node's counters.
	Stats() cluster.Stats
}
