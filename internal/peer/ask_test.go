package peer_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier/internal/node"
	"twotier/internal/simnet"
)

// TestQuestionsOfUsersDontHoldUpThoseOfNodes has more users ask for what takes long than there are lanes, and a node for something else.
func TestQuestionsOfUsersDontHoldUpThoseOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{}, "", "")
		p.fake.delay = 2 * time.Second
		var users sync.WaitGroup
		for range 50 {
			users.Go(func() { _ = p.client.Ask(t.Context(), p.to, &node.TopQuestion{}, new(node.TopAnswer)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.client.Ask(ctx, p.to, &node.PingQuestion{}, nil); err != nil {
			t.Error(err)
		}
		users.Wait()
		time.Sleep(p.fake.delay) // for what nobody waits for any more
	})
}
