package simnet

import "context"

// Freeze suspends the host: it sends nothing and takes nothing until Thaw. Packets to it are lost;
// calls to it and from it, and whatever else asks [Net.Awake], go on then. What runs on the host
// without asking the network runs on.
func (n *Net) Freeze(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen[ip] == nil {
		n.frozen[ip] = make(chan struct{})
	}
}

// Thaw lets a frozen host go on.
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
