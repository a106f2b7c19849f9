package reload

// Look polls once, as an open loader does by itself.
func (l *Loader) Look() { l.look() }
