package modes

import "context"

// Hold begins a step of a change that never ends.
func (s *Switch) Hold(ctx context.Context) error { return s.stepMu.Lock(ctx) }
