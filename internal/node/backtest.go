package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/topkeys"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/ring"
)

const (
	// backtestTimeout bounds a backtest. It reports keys that were not read by then as unread.
	backtestTimeout = 8 * time.Second
	// searchTimeout bounds the search of other nodes for their busiest keys, among all they have.
	searchTimeout = 2 * time.Second
	// replayBatch is the number of keys in one request to another node; replayReaders is the
	// number of keys that a node reads at once, because some may have to be loaded.
	replayBatch   = 32
	replayReaders = 16
)

// Backtest reports the effect that rules would have, see backtest.Run. A node runs one at a time;
// the error is twotier.ErrOverload if another one takes too long.
func (n *Node) Backtest(ctx context.Context, rules []*twotier.Rule,
	top int) (r *backtest.Report, err error) {
	err = n.runBacktest(ctx, func(ctx context.Context) error {
		r, err = backtest.Run(ctx, backtestSource{n}, rules, top)
		return err
	})
	return r, err
}

// runBacktest runs a function that reads many keys, once no other one runs.
func (n *Node) runBacktest(ctx context.Context, run func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, backtestTimeout)
	defer cancel()
	select {
	case n.backtests <- struct{}{}:
		defer func() { <-n.backtests }()
	case <-ctx.Done():
		return twotier.ErrOverload
	}
	return run(ctx)
}

// backtestSource adapts a node to backtests.
type backtestSource struct{ n *Node }

// Busiest implements [backtest.Source].
func (r backtestSource) Busiest(ctx context.Context, namespaces []string, limit int,
	window int64) (keys []twotier.KeyCount, silent []string, err error) {
	n := r.n
	q := &TopRequest{Limit: limit, Window: window, Namespaces: namespaces}
	if keys, err = n.ownTop(ctx, q); err != nil || n.opt.Ring == nil {
		return keys, nil, err
	}
	silent = askOthers(ctx, n, searchTimeout, q, func(a *TopResponse) {
		keys = append(keys, a.Keys...)
	})
	return topkeys.Largest(topkeys.SumByKey(keys), limit), silent, nil
}

// ownTop returns the busiest keys that this node owns. In Redis mode with a list of namespaces, it
// returns the most frequent of the keys in this node's requests.
func (n *Node) ownTop(ctx context.Context, q *TopRequest) ([]twotier.KeyCount, error) {
	switch {
	case len(q.Namespaces) == 0:
		return n.top.Top(ctx, q.Prefix, q.Limit, q.Window)
	case !n.inRedis():
		return n.opt.Counter.TopOf(ctx, q.Namespaces, q.Limit, q.Window)
	}
	keys, err := n.sample.Top("", topkeys.MaxSampled, q.Window, n.opt.Clock.Now())
	keys = slices.DeleteFunc(keys, func(k twotier.KeyCount) bool {
		return !slices.Contains(q.Namespaces, k.NS)
	})
	return keys[:min(q.Limit, len(keys))], err
}

// TopRefused implements [backtest.Source].
func (r backtestSource) TopRefused(ctx context.Context, limit int,
	window int64) ([]twotier.KeyCount, error) {
	return r.n.Top(ctx, "refused", "", limit, window)
}

// Replay implements [backtest.Source]. The owner of each key replays it.
func (r backtestSource) Replay(
	ctx context.Context, ask *backtest.ReplayRequest,
) [][]backtest.Outcome {
	n := r.n
	outcomes := make([][]backtest.Outcome, len(ask.Keys))
	owners, own := n.groupByOwner(ctx, ask)
	var done sync.WaitGroup
	for to, at := range owners {
		done.Go(func() {
			for part := range slices.Chunk(at, replayBatch) {
				n.replayAt(ctx, to, ask, part, outcomes)
			}
		})
	}
	n.replay(ctx, ask, own, outcomes, true)
	done.Wait()
	var unread []int
	for i := range outcomes {
		if len(outcomes[i]) == 0 {
			unread = append(unread, i)
		}
	}
	// The owners of the unread keys can't be reached, or no longer own them.
	n.replay(ctx, ask, unread, outcomes, true)
	return outcomes
}

// groupByOwner returns the keys that other nodes own, and the keys that this node is to read.
func (n *Node) groupByOwner(
	ctx context.Context, ask *backtest.ReplayRequest,
) (owners map[*ring.Member][]int, own []int) {
	owners = map[*ring.Member][]int{}
	members := map[string]*ring.Member{}
	for i, k := range ask.Keys {
		to, err := n.owned.Locate(ctx, n.opt.Placement.Of([]byte(k.NS), []byte(k.Key)))
		if err != nil || to == nil {
			own = append(own, i)
			continue
		}
		if members[to.Name] == nil {
			members[to.Name] = to
		}
		owners[members[to.Name]] = append(owners[members[to.Name]], i)
	}
	return owners, own
}

// replayAt has another node replay some keys.
func (n *Node) replayAt(ctx context.Context, to *ring.Member, ask *backtest.ReplayRequest, at []int,
	outcomes [][]backtest.Outcome) {
	q := ReplayRequest{backtest.ReplayRequest{Lists: ask.Lists}}
	for _, i := range at {
		q.Keys = append(q.Keys, ask.Keys[i])
	}
	var a ReplayResponse
	if n.opt.Peers.Ask(ctx, to, &q, &a) != nil || len(a.Outcomes) != len(at) {
		return
	}
	for j, i := range at {
		outcomes[i] = a.Outcomes[j]
	}
}

// replayOwn replays keys that this node owns, for another node.
func (n *Node) replayOwn(ctx context.Context, ask *backtest.ReplayRequest) [][]backtest.Outcome {
	outcomes := make([][]backtest.Outcome, len(ask.Keys))
	all := make([]int, len(ask.Keys))
	for i := range all {
		all[i] = i
	}
	n.replay(ctx, ask, all, outcomes, false)
	return outcomes
}

// replay replays some keys of a request on this node. With allowNonOwner, it reads the keys of
// other nodes from the store.
func (n *Node) replay(ctx context.Context, ask *backtest.ReplayRequest, at []int,
	outcomes [][]backtest.Outcome, allowNonOwner bool) {
	next := make(chan int)
	var done sync.WaitGroup
	for range min(replayReaders, len(at)) {
		done.Go(func() {
			for i := range next {
				outcomes[i] = n.replayKey(ctx, ask, i, allowNonOwner)
			}
		})
	}
	for _, i := range at {
		next <- i
	}
	close(next)
	done.Wait()
}

// replayKey replays one key, or returns nil if it can't be read.
func (n *Node) replayKey(ctx context.Context, ask *backtest.ReplayRequest, i int,
	allowNonOwner bool) (list []backtest.Outcome) {
	if ctx.Err() != nil {
		return nil
	}
	key := &ask.Keys[i]
	v, err := n.snapshot(ctx, []byte(key.NS), []byte(key.Key), allowNonOwner)
	if err != nil {
		return nil
	}
	for _, l := range key.Lists {
		if l < 0 || l >= len(ask.Lists) {
			return nil
		}
		list = append(list, backtest.Replay(v, ask.Lists[l]))
	}
	return list
}

// snapshot reads all buckets of a key.
func (n *Node) snapshot(ctx context.Context, ns, key []byte,
	allowNonOwner bool) (v leaparray.View, err error) {
	if n.inRedis() {
		err = n.modes.During(ctx, modes.Redis, func() (err error) {
			v, _, err = n.opt.Direct.Snapshot(ctx, ns, key)
			return err
		})
		if !errors.Is(err, modes.ErrChanged) {
			return v, err
		}
	}
	v, _, err = n.opt.Counter.Snapshot(ctx, ns, key, false)
	if allowNonOwner && errors.Is(err, twotier.ErrNotOwner) {
		v, _, err = n.opt.Counter.Snapshot(ctx, ns, key, true)
	}
	return v, err
}
