package simnet

// worker is a goroutine that does one task after the other for a host. Idle workers are kept,
// because most of the cost of a short call is growing the stack of its goroutine.
type worker chan func()

// do runs a task on an idle worker, or on a new one.
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

// work runs the tasks of a worker until the host is stopped.
func (h *Host) work(w worker) {
	for something := range w {
		something()
		h.rest(w)
	}
}

// rest makes a worker idle, or ends it if the host is stopped.
func (h *Host) rest(w worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		close(w)
		return
	}
	h.idle = append(h.idle, w)
}

// dismissLocked ends the idle workers.
func (h *Host) dismissLocked() {
	for _, w := range h.idle {
		close(w)
	}
	h.idle = nil
}
