package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Options configure a [Client]. The zero value of a field means its default.
type Options struct {
	// Addresses are nodes to begin with, as host:port. One that can be reached is enough: it tells
	// of the others. Required.
	Addresses []string
	// Timeout bounds each call, with all its attempts. Default: 3 s. A context may end earlier.
	Timeout time.Duration
	// AttemptTimeout is how long an answer is waited for before the request is sent again. Default:
	// a quarter of Timeout.
	AttemptTimeout time.Duration
	// Refresh is how often the table of owners is read, give or take a quarter; it is also read
	// when an answer shows that it is old. Default: 5 s.
	Refresh time.Duration
	// OnlyAddresses keeps to Addresses: for a proxy or a balancer in front of nodes that can't be
	// reached directly.
	OnlyAddresses bool
	// Lanes is how many requests may be under way to a node at the same time, each with a
	// connection of its own; there are as many again for operations that take longer: those with
	// AckRedis, and those that the node has to pass on. Default: 2.
	Lanes int
	// MaxBatch is from how many operations on a request takes no further ones, up to 5,000.
	// Default: 1,000.
	MaxBatch int
	// MaxWaiting is how many calls may wait for each node before further ones are refused with
	// [ErrOverloaded]. Default: 8,192.
	MaxWaiting int
	// Dial makes the connections to nodes, as net.Dialer.DialContext does: by way of a proxy, from
	// a certain address, or on a network that a test has made. ctx ends when the connection is no
	// longer wanted. TLS comes on top of it. network is "tcp". Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS makes all connections use TLS, for nodes with --tls-cert or a proxy in front that wants
	// it. Default: none.
	TLS *tls.Config
	// Token is what to present to nodes with --tokens, with the roles that the calls take. Default:
	// none.
	Token string
	// Authorization is the value of the header of that name, in place of Token, for a proxy in
	// front that wants it. Default: none.
	Authorization string
	// Logger is told when a node stops and starts to answer. Default: none.
	Logger *slog.Logger
}

// maxBatch is half of what a server takes in one request: the last call that it takes may have as
// many.
const maxBatch = 5_000

func (o Options) withDefaults() (Options, error) {
	if len(o.Addresses) == 0 {
		return o, fmt.Errorf("client: Options.Addresses is empty, want at least one host:port")
	}
	for i, a := range o.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return o, fmt.Errorf("client: Options.Addresses[%d]: %w", i, err)
		}
	}
	for _, d := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"Timeout", &o.Timeout, 3 * time.Second},
		{"AttemptTimeout", &o.AttemptTimeout, 0},
		{"Refresh", &o.Refresh, 5 * time.Second},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("client: Options.%s is %v, want more than 0", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.preset
		}
	}
	if o.AttemptTimeout == 0 {
		o.AttemptTimeout = max(o.Timeout/4, time.Millisecond)
	}
	for _, n := range []struct {
		name         string
		value        *int
		preset, most int
	}{
		{"Lanes", &o.Lanes, 2, 64},
		{"MaxBatch", &o.MaxBatch, 1000, maxBatch},
		{"MaxWaiting", &o.MaxWaiting, 8192, 1 << 20},
	} {
		if *n.value < 0 || *n.value > n.most {
			return o, fmt.Errorf("client: Options.%s is %d, want 1 to %d", n.name, *n.value, n.most)
		}
		if *n.value == 0 {
			*n.value = n.preset
		}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: keepAlive}).DialContext
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
