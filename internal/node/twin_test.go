package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// pinged is the only other process. It answers pings with answers in turn; rpc.ErrLate, and any
// ping after the last answer, waits for the timeout.
type pinged struct {
	others
	answers []error
	asked   int
}

func (p *pinged) Ask(ctx context.Context, _ *ring.Member, _, _ any) error {
	p.asked++
	if p.asked <= len(p.answers) && !errors.Is(p.answers[p.asked-1], rpc.ErrLate) {
		return p.answers[p.asked-1]
	}
	<-ctx.Done()
	return rpc.ErrLate
}

// TestATwinMayMissOnePing starts a node under the name of a process that is alive, is gone, or does
// not answer in time: either once, as when a machine stands still for a moment, or always.
func TestATwinMayMissOnePing(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error
		alive   bool
		pings   int
	}{
		"alive":  {[]error{nil}, true, 1},
		"late":   {[]error{rpc.ErrLate, nil}, true, 2},
		"gone":   {[]error{fmt.Errorf("dial: %w", rpc.ErrUnreachable)}, false, 1},
		"silent": {nil, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peers := &pinged{answers: c.answers}
				err := openTwin(t, peers)
				if refused := errors.Is(err, ring.ErrRefused); refused != c.alive ||
					err != nil && !refused || peers.asked != c.pings {
					t.Errorf("after %d pings: %v", peers.asked, err)
				}
			})
		})
	}
}

// openTwin opens a node in a cluster that has another process with its name.
func openTwin(t *testing.T, peers node.Peers) error {
	t.Helper()
	network := simnet.New(1, simnet.Weather{Delay: time.Millisecond})
	var rings []*ring.Ring
	for i := range 2 {
		host := network.Start(fmt.Sprint("10.0.0.", i+1))
		r, err := ring.New(ring.Options{
			ID: "n", Bind: host.Address(), Join: []string{"10.0.0.1:7946"},
			Transport: host.Transport(), Agreement: ring.Agreement{Partitions: 7},
		})
		must.Succeed(t, err)
		rings = append(rings, r)
	}
	must.Succeed(t, rings[0].Open(t.Context(), "10.0.0.1:8080"))
	rings[0].Enter(t.Context())
	clock, place := storeclock.New(nil, nil), twotier.Placement{Partitions: 7}
	counter, err := syncer.New(syncer.Options{
		Store: embedded.New(embedded.Options{}), Now: clock.Now, Placement: place, NotOwner: true,
	})
	must.Succeed(t, err)
	n, err := node.New(node.Options{ID: "n", Mode: cluster.TwoTier, Counter: counter, Peers: peers,
		Ring: rings[1], Store: still{}, Clock: clock, Placement: place})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := errors.Join(n.Close(context.Background()),
			rings[0].Close(context.Background())); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute) // memberlist's goroutines end with their last probe
	})
	return n.Open(t.Context(), "10.0.0.2:8080")
}
