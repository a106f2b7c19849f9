package gated

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// Gate returns the gate of a variant in Go, and the networks of its trusted proxies.
func Gate(t *testing.T, v *Variant) (g *client.Gate, trusted []netip.Prefix) {
	t.Helper()
	c, err := client.New(client.Options{Addresses: []string{v.Server}})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, c.Close(context.Background())) })
	outage := client.FailOpen
	if v.Deny {
		outage = client.FailClosed
	}
	g, err = client.NewGate(client.GateOptions{Client: c, Outage: outage, Wait: 5 * time.Second,
		Namespace: v.Namespace, Name: v.Options.Name,
		Limits: []client.Limit{{Window: time.Minute, Max: 3}}})
	must.Succeed(t, err)
	if v.Trusted != "" {
		trusted = append(trusted, netip.PrefixFrom(netip.MustParseAddr(v.Trusted), 32))
	}
	return g, trusted
}
