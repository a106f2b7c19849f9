package hotkeys

import (
	"context"

	"twotier.dev/twotier"
)

// Recall returns once this node, which owns a key, has all counts that other nodes had made of it
// before the call.
func (t *Tracker) Recall(ctx context.Context, c *twotier.Check) error {
	return t.joinRecall(c).wait(ctx)
}
