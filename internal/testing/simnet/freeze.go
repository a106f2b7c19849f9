package simnet

import "context"

// Freeze suspends the host: until Thaw it sends and receives nothing. Packets to it are lost. Calls
// to it and from it, and all other waits in [Net.Awake], continue after Thaw. Code on the host that
// doesn't use the network keeps running.
func (n *Net) Freeze(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen[ip] == nil {
		n.frozen[ip] = make(chan struct{})
	}
}

// Thaw resumes a frozen host.
func (n *Net) Thaw(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if waking := n.frozen[ip]; waking != nil {
		close(waking)
		delete(n.frozen, ip)
	}
}

// Awake waits until the host is not frozen, or ctx is done.
func (n *Net) Awake(ctx context.Context, ip string) error {
	n.mu.Lock()
	waking := n.frozen[ip]
	n.mu.Unlock()
	if waking == nil {
		return nil
	}
	select {
	case <-waking:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Net) isFrozen(ip string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.frozen[ip] != nil
}
