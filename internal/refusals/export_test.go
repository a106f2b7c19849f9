package refusals

// Most is about how many refusals are remembered.
const Most = most

// Wait returns once what was noted before is found, if it was taken in.
func (c *Cache) Wait() { c.kept.Wait() }
