package reload

// Poll polls once, as an open loader does by itself.
func (l *Loader) Poll() { l.poll() }
