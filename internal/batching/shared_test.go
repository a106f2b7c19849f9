package batching_test

import (
	"slices"
	"sync"
	"testing"

	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/testing/must"
)

// TestCallsThatShareASignal waits for calls together, in rounds that reuse the signal: none of them
// is missed, whatever signals earlier rounds have left.
func TestCallsThatShareASignal(t *testing.T) {
	q := batching.New[*call](batching.Options{Waiting: 10})
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() { q.Run(nil, finish) })
	}
	done := make(chan struct{}, 1)
	for range 2000 {
		calls := make([]*call, 4)
		for i := range calls {
			calls[i] = &call{ops: 1}
			calls[i].ResetTo(done)
			must.Succeed(t, q.Put(calls[i]))
		}
		for len(calls) > 0 {
			<-done
			calls = slices.DeleteFunc(calls, func(c *call) bool {
				over, err := c.Finished()
				return over && err == nil
			})
		}
	}
	q.Close(errClosed)
	workers.Wait()
}
