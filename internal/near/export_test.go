package near

// Wait returns once everything that was put before is found, if it was taken in.
func (c *Cache[V]) Wait() { c.c.Wait() }
