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
	// Addresses are nodes to start with, as host:port. One reachable node is enough: the client
	// learns the others from it. Required.
	Addresses []string
	// Timeout bounds each call, with all its attempts. Default: 3 s. A context may end earlier.
	Timeout time.Duration
	// AttemptTimeout is how long to wait for an answer before sending the request again. Default: a
	// quarter of Timeout.
	AttemptTimeout time.Duration
	// Refresh is how often to read the table of owners, plus or minus a quarter. The client also
	// reads it when an answer shows that it is out of date. Default: 5 s.
	Refresh time.Duration
	// OnlyAddresses restricts the client to Addresses, for a proxy or a load balancer in front of
	// nodes that can't be reached directly.
	OnlyAddresses bool
	// Lanes is how many requests may be in flight to a node at the same time, each on its own
	// connection. There are as many lanes again for slow operations: operations with AckRedis, and
	// operations that the node has to forward. Default: 2.
	Lanes int
	// MaxBatch is the number of operations at which a request is full, up to 5,000. Default: 1,000.
	MaxBatch int
	// MaxWaiting is how many calls may wait for each node before more are refused with
	// [ErrOverloaded]. Default: 8,192.
	MaxWaiting int
	// Dial makes the connections to nodes, like net.Dialer.DialContext: through a proxy, from a
	// certain address, or on a network made by a test. ctx ends when the connection is no longer
	// wanted. TLS is added on top. network is "tcp". Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS makes all connections use TLS, for nodes with --tls-cert or behind a proxy that requires
	// it. Default: none.
	TLS *tls.Config
	// Token is presented to nodes with --tokens. It needs the roles that the calls require.
	// Default: none.
	Token string
	// Authorization is the value of the Authorization header, in place of Token, for a proxy that
	// requires it. Default: none.
	Authorization string
	// Logger logs when a node stops answering and when it answers again. Default: none.
	Logger *slog.Logger
}

// maxBatch is half of a server's maximum for one request, because the last call added to a request
// may have as many operations again.
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
