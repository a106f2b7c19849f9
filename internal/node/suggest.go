package node

import (
	"context"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/topkeys"
)

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
