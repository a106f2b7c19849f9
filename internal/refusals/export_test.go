package refusals

// Wait returns once all accepted refusals can be found.
func (c *Cache) Wait() { c.kept.Wait() }
