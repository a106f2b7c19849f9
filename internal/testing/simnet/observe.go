package simnet

// Sent is something that was sent.
type Sent struct {
	Kind Kinds
	// Stream tells the streams of gossip from its packets.
	Stream bool
	// Messages is the number of packets, of streams that were opened, or of requests and replies; 0
	// for data on a stream that is open. Bytes is the size of what they carry.
	Messages, Bytes int
}

// Observe calls fn with all gossip and all calls that are sent from now on, those included that are
// lost on their way. fn may be called concurrently. Connections of [Host.Dial] are not observed.
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
