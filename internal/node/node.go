package node

import (
	"context"
	"errors"
)

// Node is one twotier server without its network side. (skeleton: being written)
type Node struct{}

var errSkeleton = errors.New("not there yet")

func (n *Node) Do(ctx context.Context, op *Op, res *Result) error { return errSkeleton }

// DoAll executes the operations in order and sets Err in each result.
func (n *Node) DoAll(ctx context.Context, ops []Op, res []Result) {}

// Series returns the buckets of a key over a window that ends now.
func (n *Node) Series(ctx context.Context, ns, key []byte, window int64) (bucketMS int64, points []Point, err error) {
	return 0, nil, errSkeleton
}

// Top returns up to limit keys with the largest counts over the window, largest first.
func (n *Node) Top(ctx context.Context, limit int, window int64) ([]KeyCount, error) {
	return nil, errSkeleton
}

// Reset forgets a key in memory and in the store.
func (n *Node) Reset(ctx context.Context, ns, key []byte) error { return errSkeleton }

// Cluster returns the cluster as this node sees it.
func (n *Node) Cluster() ClusterView { return ClusterView{} }

// Ready returns nil while the node can answer honestly, and whether its answers are degraded.
func (n *Node) Ready() (degraded bool, err error) { return false, errSkeleton }

// Stats returns a snapshot of the node's figures.
func (n *Node) Stats() Stats { return Stats{} }
