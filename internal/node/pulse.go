package node

import (
	"context"
	"time"

	"twotier.dev/twotier/internal/elapsed"
)

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
