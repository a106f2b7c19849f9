package modes_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/modes"
)

// model counts the operations under way on all nodes, by mode.
type model struct {
	*testing.T
	seed           uint64
	twoTier, redis atomic.Int64
	done           atomic.Int64
}

// operate runs operations on a node until stop is closed, in the node's current mode. No operation
// may be under way in one mode while another is in the other, on any node.
func (m *model) operate(rnd *rand.Rand, n *node, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(1+rnd.IntN(3000)) * time.Microsecond):
		}
		mode, mine, others := n.Mode(), &m.twoTier, &m.redis
		if mode == modes.Redis {
			mine, others = others, mine
		}
		if !n.Enter(mode) {
			continue
		}
		mine.Add(1)
		if others.Load() > 0 {
			m.Errorf("seed %d: an operation begins in mode %s beside one in the other mode",
				m.seed, mode)
		}
		time.Sleep(time.Duration(rnd.IntN(5000)) * time.Microsecond)
		mine.Add(-1)
		n.Leave()
		m.done.Add(1)
	}
}

// TestModelOfChanges changes the mode again and again, from any node and from two at once, with
// flushes that take time or fail, while operations go on at every node.
func TestModelOfChanges(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) { playModel(&model{T: t, seed: seed}) })
	}
}

func playModel(m *model) {
	rnd := rand.New(rand.NewPCG(m.seed, 1))
	c := newCluster(m.T)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i, n := range c.nodes {
		slow, fails := time.Duration(1+rnd.IntN(20))*time.Millisecond, rnd.IntN(4) == 0
		n.flushes = func() error {
			time.Sleep(slow)
			if fails && time.Now().UnixMilli()%3 == 0 {
				return errors.New("the store is gone")
			}
			return nil
		}
		for k := range 3 {
			own := rand.New(rand.NewPCG(m.seed, uint64(10*i+k)))
			running.Go(func() { m.operate(own, n, stop) })
		}
	}
	made := 0
	for range 30 {
		made += m.changeSomewhere(rnd, c)
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
	}
	close(stop)
	running.Wait()
	if m.done.Load() == 0 || made == 0 {
		m.Errorf("seed %d: %d operations, %d changes", m.seed, m.done.Load(), made)
	}
}

// changeSomewhere makes one or two nodes change the mode, and returns the number of changes made.
func (m *model) changeSomewhere(rnd *rand.Rand, c *cluster) (made int) {
	to := modes.Redis
	if c.nodes[0].Mode() == to {
		to = modes.TwoTier
	}
	results := make(chan error, 2)
	some := 1 + rnd.IntN(2)
	for range some {
		n := c.nodes[rnd.IntN(len(c.nodes))]
		go func() { results <- n.Change(context.Background(), to) }()
	}
	for range some {
		if <-results == nil {
			made++
		}
	}
	return made
}
