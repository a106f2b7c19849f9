package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/syncer"
)

// MarkNotReady makes the node report that it is not ready, and changes nothing else: it keeps
// serving and owning, so that no request is refused before load balancers have noticed. Drain is
// the next step.
func (n *Node) MarkNotReady() { n.retired.Store(true) }

// Drain announces that the node is about to leave and hands over everything it owns, until ctx is
// done. It keeps serving meanwhile, and waits for the outcome of its reservations for acquires over
// several owners: a partition that reservations hold up for long is given up without a handoff, but
// a reservation ends with the process. If all other nodes are leaving as well, it does not wait for
// them: pending counts go to the store.
func (n *Node) Drain(ctx context.Context) error {
	if n.draining.Swap(true) || n.opt.Ring == nil || !n.opened.Load() {
		return nil
	}
	if n.table().Len() == 1 {
		return nil // no other node could receive anything
	}
	n.opt.Ring.Drain(ctx)
	// Nodes that the announcement has not reached yet still ask this node, which redirects them.
	heard := time.Now().Add(drainLinger)
	for n.owned.HeldCount() > 0 || !n.parts.Idle() || time.Now().Before(heard) {
		if !n.hasSuccessor() {
			n.opt.Logger.Info("no other node stays in the cluster: flushing instead of handing "+
				"over", "partitions", n.owned.HeldCount())
			break
		}
		if ctx.Err() != nil {
			n.opt.Logger.Warn("not everything could be handed over: flushing it", "partitions",
				n.owned.HeldCount())
			break
		}
		retry.Pause(ctx, drainPause)
	}
	n.parts.Leave(ctx)
	return nil
}

// hasSuccessor reports whether another member stays in the cluster.
func (n *Node) hasSuccessor() bool {
	t := n.table()
	for i := range t.Len() {
		if i != t.Self() && !t.Member(i).Draining && !t.Member(i).Starting {
			return true
		}
	}
	return false
}

const (
	// drainPause is how often a leaving node checks whether it still holds anything.
	drainPause = 20 * time.Millisecond
	// drainLinger is the minimum time that a leaving node stays: its announcement spreads within
	// half of that.
	drainLinger = time.Second
)

const (
	// flushReport is how often the progress of the last flush is logged.
	flushReport = time.Second
	// stallTimeout is how long the last flush goes on while the store accepts nothing.
	stallTimeout = 10 * time.Second
)

// The reasons why the last flush gives up.
var (
	errStalled = fmt.Errorf("gave up flushing: the store has taken nothing for %v", stallTimeout)
	errTooLong = errors.New("gave up flushing: the time for it is up")
)

// Flush ends counting on this node: writes are refused, reads are still answered, and pending
// counts are flushed until the store has everything, stops accepting, or ctx is done. It logs its
// progress every second. The error is the reason for giving up; Close reports the counts left.
func (n *Node) Flush(ctx context.Context) error {
	n.draining.Store(true)
	if !n.opened.Load() {
		return nil
	}
	c := n.opt.Counter
	if c == nil {
		return nil
	}
	c.Drain()
	last := c.Stats().FlushedBucketsTotal
	return n.flushUntilDone(ctx, c.Flush, func() (progress bool) {
		s := c.Stats()
		n.logFlushProgress(s)
		progress = s.FlushedBucketsTotal > last
		last = s.FlushedBucketsTotal
		return progress
	})
}

// flushUntilDone flushes until the store has everything, ctx is done, or there is no progress for
// stallTimeout.
func (n *Node) flushUntilDone(ctx context.Context, flush func(context.Context) error,
	progress func() bool) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- flush(ctx) }()
	ticker := time.NewTicker(flushReport)
	defer ticker.Stop()
	since := time.Now()
	for {
		select {
		case err := <-done:
			if err == nil {
				return nil
			}
			n.gaveUp.Store(true)
			if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
				return cause
			}
			return errTooLong
		case <-ticker.C:
			if progress() {
				since = time.Now()
			}
			if time.Since(since) >= stallTimeout {
				stop(errStalled)
			}
		}
	}
}

func (n *Node) logFlushProgress(s syncer.Stats) {
	n.opt.Logger.Info("flushing before the end", "pending_buckets", s.PendingBuckets,
		"flushed_buckets", s.FlushedBucketsTotal,
		"oldest", s.UnflushedAge.Round(time.Millisecond))
}
