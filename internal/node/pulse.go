package node

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/elapsed"
)

// errStoodStill is the unknown outcome of an operation on distinct values.
var errStoodStill = fmt.Errorf("%w: added, but this node stood still before it could answer, and "+
	"another one may have decided meanwhile", twotier.ErrUnknownOutcome)

// runPulse watches for standstills of this process until ctx is done.
func (n *Node) runPulse(ctx context.Context) {
	ticker := time.NewTicker(elapsed.BeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			n.beat()
		}
	}
}

// beat records that this process is running. After a standstill, the node learns its partitions
// anew.
func (n *Node) beat() {
	n.opt.Pulse.Beat(func() {
		n.opt.Logger.Warn("this process stood still: learning anew which keys it decides about")
		n.owned.Relearn()
	})
}

// pulseNow returns the number of standstills so far, for hasRunSince. running is false if this node
// has just stood still and has yet to learn its partitions anew.
func (n *Node) pulseNow() (stops uint64, running bool) {
	if n.opt.Pulse == nil {
		return 0, true
	}
	stops = n.opt.Pulse.Stops()
	return stops, n.opt.Pulse.HasRunSince(stops)
}

// hasRunSince reports whether this process has not stood still since pulseNow.
func (n *Node) hasRunSince(stops uint64) bool {
	return n.opt.Pulse == nil || n.opt.Pulse.HasRunSince(stops)
}
