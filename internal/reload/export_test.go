package reload

// Poll polls once, as an open loader does periodically.
func (l *Loader) Poll() { l.poll() }
