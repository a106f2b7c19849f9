package reload

// Look is what a loader does by itself.
func (l *Loader) Look() { l.look() }
