package envoy

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"twotier.dev/twotier/internal/account"
)

// usage is what one address uses besides connections.
type usage struct{ calls, streams account.Usage }

// clientAddr is the address of a connection, and whose it is.
type clientAddr struct {
	net.Addr
	client *account.Client[usage]
}

// streamsOf returns the full names of the methods that have streams.
func streamsOf(services map[string]grpc.ServiceInfo) map[string]bool {
	names := map[string]bool{}
	for service, info := range services {
		for _, m := range info.Methods {
			if m.IsClientStream || m.IsServerStream {
				names["/"+service+"/"+m.Name] = true
			}
		}
	}
	return names
}

// enter takes one of the requests that the server works on at the same time, from the moment when
// its headers are there until it has been answered, and of those only so many for one address. A
// request has RequestTimeout to arrive and as much again to be executed: otherwise one that never
// arrives completely would keep its place. Streams, which may stay, have places of their own. It
// must not wait: the connection is not read meanwhile.
func (s *Server) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	from, _ := peer.FromContext(ctx) // it always has one
	client := from.Addr.(clientAddr).client
	places, used := &s.calls, &client.Usage.calls
	if s.isStream[info.FullMethodName] {
		places, used = &s.streams, &client.Usage.streams
	}
	if _, ok := places.Try(used, 1); !ok {
		s.counters.failed.Add(1)
		s.counters.limited.Add(1)
		return nil, status.Error(codes.ResourceExhausted, "too many requests at the same time")
	}
	cancel := func() {}
	if places == &s.calls {
		ctx, cancel = context.WithTimeout(ctx, 2*s.opts.RequestTimeout)
	}
	context.AfterFunc(ctx, func() {
		cancel()
		places.Release(used, 1)
	})
	return ctx, nil
}
