package client_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// TestDialOfTheUsers reaches a node through Options.Dial, at an address without a node.
func TestDialOfTheUsers(t *testing.T) {
	b := newBed(t, 1)
	var asked atomic.Value
	c, err := client.New(client.Options{
		Addresses: []string{"localhost:1"}, OnlyAddresses: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			asked.Store(network + " " + address)
			var d net.Dialer
			return d.DialContext(ctx, network, b.nodes[0].address)
		},
	})
	must.Succeed(t, err)
	defer func() { must.Succeed(t, c.Close(context.Background())) }()
	if _, err := c.Add(t.Context(), client.AddRequest{Key: "k"}); err != nil {
		t.Error(err)
	}
	if got := asked.Load(); got != "tcp localhost:1" {
		t.Errorf("asked to dial %q", got)
	}
}
