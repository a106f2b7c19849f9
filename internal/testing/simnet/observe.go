package simnet

// Sent describes a transmission.
type Sent struct {
	Kind Kinds
	// Stream distinguishes the streams of gossip from its packets.
	Stream bool
	// Messages is the number of packets, of opened streams, or of requests and replies; 0 for data
	// on an open stream. Bytes is the size of the payload.
	Messages, Bytes int
}

// Observe calls fn with all gossip and all calls that are sent from now on, including the ones that
// get lost. fn may be called concurrently. Connections of [Host.Dial] are not observed.
func (n *Net) Observe(fn func(Sent)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observe = fn
}

func (n *Net) sent(s Sent) {
	n.mu.Lock()
	observe := n.observe
	n.mu.Unlock()
	if observe != nil {
		observe(s)
	}
}
