package tap

// Held returns the bytes of the calls that wait for their replies.
func (t *Tap) Held() int64 { return t.calls.InUse() }
