package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/topkeys"
)

// Series returns the buckets of a key over a window, in milliseconds, that ends now, oldest first,
// and their width.
func (n *Node) Series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []twotier.Point, err error) {
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		if bucketMS, points, err = n.series(ctx, ns, key, window); !errors.Is(err,
			twotier.ErrNotOwner) {
			return bucketMS, points, err
		}
	}
	return 0, nil, fmt.Errorf("%w: the key is being handed over", twotier.ErrUnavailable)
}

// series is one attempt of Series. It may fail with ErrNotOwner if the key starts to change hands.
func (n *Node) series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []twotier.Point, err error) {
	if n.inRedis() {
		err = n.modes.During(ctx, modes.Redis, func() (err error) {
			bucketMS, points, err = n.opt.Direct.Series(ctx, ns, key, window)
			return err
		})
		if !errors.Is(err, modes.ErrChanged) {
			return bucketMS, points, err
		}
	}
	to, err := n.owned.Locate(ctx, n.opt.Placement.Of(ns, key))
	switch {
	case errors.Is(err, ownership.ErrInRedis):
		return n.series(ctx, ns, key, window)
	case err == nil && to != nil:
		var a SeriesResponse
		err = n.opt.Peers.Ask(ctx, to, &SeriesRequest{ns, key, window}, &a)
		if err == nil || errors.As(err, new(*twotier.InvalidError)) {
			return a.BucketMS, a.Points, err
		}
	case err == nil:
		bucketMS, points, err = n.opt.Counter.Series(ctx, ns, key, window, false)
		if !errors.Is(err, twotier.ErrNotOwner) {
			return bucketMS, points, err
		}
	}
	return n.opt.Counter.Series(ctx, ns, key, window, true)
}

// newTop makes what the lists of keys need.
func (n *Node) newTop() {
	n.leases = topkeys.NewCache(n.ownLeases)
	if n.opt.Counter != nil {
		n.top = topkeys.NewCache(n.opt.Counter.TopWithPrefix)
	}
	if n.opt.Direct != nil {
		n.sample, n.leased = topkeys.NewSample(), topkeys.NewSample()
	}
}

// Top returns up to limit keys that begin with a prefix and have the largest counts over the
// window, largest first, from all nodes that can be reached. The answer may be a second old. by is
// what it counts: events, or
//   - "refused" and "shadow": refusals of acquires, and those that rules in shadow would have made.
//     Each node contributes the most frequent keys in its own requests, in either mode.
//   - "concurrent": open leases of all keys now. In Redis mode it only covers the keys of which the
//     nodes have taken the most leases.
//
// In Redis mode the counts of events only cover the most frequent keys in this node's requests.
func (n *Node) Top(ctx context.Context, by, prefix string, limit int,
	window int64) ([]twotier.KeyCount, error) {
	var own *topkeys.Cache
	q := TopRefusedRequest{Limit: limit, Window: window, Prefix: prefix}
	var others any
	var merge func([]twotier.KeyCount) []twotier.KeyCount
	switch by {
	case "refused":
		q.Limit = refusedRowLimit(limit)
		own, others, merge = n.denied.Cache, &q, topkeys.SumByKey
	case "shadow":
		q.Limit = refusedRowLimit(limit)
		own, others, merge = n.shadowed.Cache, (*TopShadowRefusedRequest)(&q), topkeys.SumByKey
	case "concurrent":
		q.Window, q.Prefix = 0, ""
		own, others, merge = n.leases, &TopLeasesRequest{limit}, topkeys.MaxByKey
	default:
		if n.inRedis() {
			return n.sample.Top(prefix, limit, window, n.opt.Clock.Now())
		}
		own, others = n.top, &TopRequest{Limit: limit, Window: window, Prefix: prefix}
	}
	rows, err := own.Top(ctx, q.Prefix, q.Limit, q.Window)
	if err != nil {
		return nil, err
	}
	askOthers(ctx, n, topTimeout, others, func(a *TopResponse) { rows = append(rows, a.Keys...) })
	if rows = topkeys.WithPrefix(rows, q.Prefix); merge != nil {
		rows = merge(rows)
	}
	return topkeys.Largest(rows, limit), nil
}

// refusedRowLimit returns the number of rows that each node reports to make the first rows of the
// sum accurate: a key may be among them without being among the first of any node.
func refusedRowLimit(limit int) int { return 4*limit + 64 }

// topTimeout bounds the wait for other nodes' top keys.
const topTimeout = time.Second

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

// sampleWindow is how far back a sampled key has events, in milliseconds.
const sampleWindow = int64(24 * time.Hour / time.Millisecond)

// Suggest suggests limits for rules, see backtest.Suggest. It counts as a backtest: a node runs one
// at a time.
func (n *Node) Suggest(ctx context.Context, rules []*twotier.Rule,
	percentile float64) (s *backtest.Suggestions, err error) {
	err = n.runBacktest(ctx, func(ctx context.Context) error {
		s, err = backtest.Suggest(ctx, backtestSource{n}, rules, percentile)
		return err
	})
	return s, err
}

// Sample implements [backtest.Source].
func (r backtestSource) Sample(ctx context.Context, namespace string,
	limit int) (s backtest.Sample, err error) {
	n := r.n
	q := &SampleRequest{namespace, limit, sampleWindow}
	var all SampleResponse
	if err := n.sampleOwn(ctx, q, &all); err != nil {
		return s, err
	}
	s.Silent = askOthers(ctx, n, searchTimeout, q, func(a *SampleResponse) {
		all.Keys, all.Total = append(all.Keys, a.Keys...), all.Total+a.Total
		all.Skewed = all.Skewed || a.Skewed
	})
	keys := topkeys.MaxByKey(all.Keys)
	s.Total, s.Skewed = all.Total-int64(len(all.Keys)-len(keys)), all.Skewed
	s.Keys = topkeys.Largest(keys, limit)
	return s, nil
}

// sampleOwn samples the keys that this node owns or, in Redis mode, the keys in its requests.
func (n *Node) sampleOwn(ctx context.Context, q *SampleRequest, a *SampleResponse) (err error) {
	if !n.inRedis() {
		a.Keys, a.Total, err = n.opt.Counter.SampleOf(ctx, q.NS, q.Limit, q.Window)
		return err
	}
	a.Keys, err = n.ownTop(ctx, &TopRequest{Limit: q.Limit, Window: q.Window,
		Namespaces: []string{q.NS}})
	a.Total, a.Skewed = int64(len(a.Keys)), true
	return err
}

// leaseTries bounds the readings of a key whose leases change meanwhile.
const leaseTries = 3

// OpenLeases returns how many leases of a key are open. Like Do, it asks the key's owner, or Redis.
func (n *Node) OpenLeases(ctx context.Context, ns, key []byte) (open twotier.OpenLeases,
	err error) {
	if !n.opened.Load() {
		return open, errStarting
	}
	for range leaseTries {
		if open, err = n.readLeases(ctx, ns, key, 0); err != nil || open.Open == 0 {
			return open, err
		}
		next, err := n.readLeases(ctx, ns, key, open.Open)
		if err != nil || next.Open == open.Open {
			return next, err
		}
	}
	return open, nil
}

// readLeases reads how many leases of a key are open and, if they are as many as most, when the
// next one ends.
func (n *Node) readLeases(ctx context.Context, ns, key []byte, most int64) (twotier.OpenLeases,
	error) {
	op := companions.OpenOp(ns, key, most, n.leaseEnd())
	var res twotier.Result
	err := n.router.Do(ctx, &op, &res)
	return twotier.OpenLeases{Open: companions.OpenOf(&res), NextEnd: max(0, res.RetryAfter),
		Source: res.Source, Degraded: res.Degraded}, err
}

// leaseEnd returns an end for the leases of dry runs.
func (n *Node) leaseEnd() int64 {
	return twotier.LeaseEnd(n.opt.Clock.Now(), twotier.MaxLease.Milliseconds()/2)
}

// ownLeases is a [topkeys.Source]: of all keys of which this node knows, it lists those with the
// most leases that are open now.
func (n *Node) ownLeases(ctx context.Context, _ string, limit int,
	_ int64) ([]twotier.KeyCount, error) {
	if n.inRedis() {
		return n.topSampledLeases(ctx, limit)
	}
	return n.opt.Counter.TopLeases(ctx, limit)
}

// sampleLeases samples the keys of which an operation has taken leases.
func (n *Node) sampleLeases(op *twotier.Op) {
	for i := range op.Leases {
		c := &op.Checks[op.Leases[i].Check]
		n.leased.Add(&twotier.Check{NS: c.NS, Key: c.Key, N: 1}, n.opt.Clock.Now())
	}
}

// topSampledLeases asks Redis about the sampled keys. A key may have many open leases although it
// is not among those of which the most were taken.
func (n *Node) topSampledLeases(ctx context.Context, limit int) ([]twotier.KeyCount, error) {
	rows, err := n.leased.Top("", refusedRowLimit(limit), twotier.MaxLease.Milliseconds(),
		n.opt.Clock.Now())
	if err != nil {
		return nil, err
	}
	ops, res := make([]twotier.Op, len(rows)), make([]twotier.Result, len(rows))
	for i := range rows {
		ops[i] = companions.OpenOp([]byte(rows[i].NS), []byte(rows[i].Key), 0, n.leaseEnd())
	}
	n.router.DoAll(ctx, ops, res)
	open := rows[:0]
	for i, row := range rows {
		if res[i].Err != nil {
			return nil, res[i].Err
		}
		if row.Count = companions.OpenOf(&res[i]); row.Count > 0 {
			open = append(open, row)
		}
	}
	return topkeys.Largest(open, limit), nil
}
