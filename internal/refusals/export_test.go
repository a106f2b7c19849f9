package refusals

// Wait returns once what was noted before is found, if it was taken in.
func (c *Cache) Wait() { c.kept.Wait() }
