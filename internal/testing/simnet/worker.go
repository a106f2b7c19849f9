package simnet

// worker is a goroutine that does one thing after the other for a host. Those that have nothing to
// do are kept, as most of what a short call costs is the stack of its goroutine, which has to grow.
type worker chan func()

// do has a worker do something.
func (h *Host) do(something func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.idle); n > 0 {
		h.idle[n-1] <- something
		h.idle = h.idle[:n-1]
		return
	}
	w := make(worker, 1)
	w <- something
	go h.work(w)
}

// work does what the host has a worker do, until the host is stopped.
func (h *Host) work(w worker) {
	for something := range w {
		something()
		h.rest(w)
	}
}

// rest puts a worker among those that have nothing to do.
func (h *Host) rest(w worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		close(w)
		return
	}
	h.idle = append(h.idle, w)
}

// dismissLocked ends the workers that have nothing to do.
func (h *Host) dismissLocked() {
	for _, w := range h.idle {
		close(w)
	}
	h.idle = nil
}
