package ring

import (
	"fmt"

	"github.com/hashicorp/memberlist"
)

// Gate returns a gate in front of a transport, and a function that returns the number of open
// connections from other hosts, and the bytes they have sent beyond the free allowance of each.
func Gate(t memberlist.NodeAwareTransport) (memberlist.Transport, func() (conns int, more int64)) {
	g := newGate(t)
	return g, func() (int, int64) {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.open), g.more
	}
}

// The bounds of a gate.
const (
	MaxInbound, FreeInbound, InboundBytes = maxInbound, freeInbound, inboundBytes
)

// Came and Left report a member like memberlist, and Rebuild makes a table of the current members.
func (r *Ring) Came(n *memberlist.Node) { r.views.NotifyJoin(n) }

func (r *Ring) Left(n *memberlist.Node) { r.views.NotifyLeave(n) }

func (r *Ring) Rebuild() { r.rebuild() }

// NewCachedTable is NewTable with a cache.
var NewCachedTable = newTable

// Fill puts n placements into the cache, and returns how many it holds then.
func (c *Placements) Fill(n int) int {
	for i := range n {
		c.put(fmt.Sprint(i), nil)
	}
	return len(c.known)
}

// MaxPlacements is how many placements a cache holds at most.
const MaxPlacements = maxPlacements

// EndStreams closes the channel of a gate that has been shut down.
func EndStreams(t memberlist.Transport) { close(t.(*gate).streams) }
