package node

import (
	"context"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/refusallog"
)

// Refusals returns the recent refusals of a key, newest first, at most limit. It asks all nodes
// that can be reached.
func (n *Node) Refusals(ctx context.Context, ns, key []byte, limit int) []refusallog.Refusal {
	list := n.refusalLog.List(ns, key, limit)
	askOthers(ctx, n, topTimeout, &RefusalsRequest{NS: ns, Key: key, Limit: limit},
		func(a *RefusalsResponse) { list = append(list, a.Refusals...) })
	slices.SortStableFunc(list, refusallog.Newer)
	return list[:min(limit, len(list))]
}

// Refusal returns the refusal with an id, from the node that the id names. The error wraps
// [refusallog.ErrNotFound] if there is none, and twotier.ErrUnavailable if that node doesn't
// answer.
func (n *Node) Refusal(ctx context.Context, id string) (r refusallog.Refusal, err error) {
	name, err := refusallog.NodeOf(id)
	if err != nil {
		return r, err
	}
	if name == n.opt.ID {
		return n.refusalLog.Find(id)
	}
	t := n.table()
	for i := range t.Len() {
		if i == t.Self() || t.Member(i).ID != name {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, topTimeout)
		defer cancel()
		var a RefusalsResponse
		err := n.opt.Peers.Ask(ctx, t.Member(i), &RefusalsRequest{ID: id}, &a)
		switch {
		case err != nil:
			return r, fmt.Errorf("%w: node %s, which has the refusal, does not answer: %w",
				twotier.ErrUnavailable, name, err)
		case len(a.Refusals) != 1:
			return r, fmt.Errorf("%w on node %s: %s", refusallog.ErrNotFound, name, a.Why)
		}
		return a.Refusals[0], nil
	}
	return r, fmt.Errorf("%w: node %s, which had it, is not in the cluster any more",
		refusallog.ErrNotFound, name)
}

// serveRefusals answers another node's request for refusals.
func (n *Node) serveRefusals(q *RefusalsRequest) *RefusalsResponse {
	if q.ID == "" {
		return &RefusalsResponse{Refusals: n.refusalLog.List(q.NS, q.Key, q.Limit)}
	}
	r, err := n.refusalLog.Find(q.ID)
	if err != nil {
		return &RefusalsResponse{Why: err.Error()}
	}
	return &RefusalsResponse{Refusals: []refusallog.Refusal{r}}
}

// Decider returns the ID of the node that decides about a key, or "" if Redis does.
func (n *Node) Decider(ns, key []byte) string {
	if n.inRedis() {
		return ""
	}
	if to := n.owned.Decider(n.opt.Placement.Of(ns, key)); to != nil {
		return to.ID
	}
	return n.opt.ID
}

// Identify returns the ID of this node and the time in unix milliseconds.
func (n *Node) Identify() (node string, now int64) { return n.opt.ID, n.opt.Clock.Now() }
