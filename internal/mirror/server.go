package mirror

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/listener"
)

// The bounds of the HTTP interface: the bytes of bodies that arrive at a time, how long a request
// waits for room among them, the longest header in bytes, and the number of connections.
const (
	maxBodies    = 16 << 20
	bodyPatience = time.Second
	maxHeader    = 16 << 10
	maxConns     = 1024
)

// errBusy is the error of a request that has waited too long.
var errBusy = errors.New("too many bodies arrive at a time; send fewer verdicts, or later")

// Server serves the HTTP interface of a mirror. Half of its connections and of the bytes of bodies
// are for one address. Close lets requests that have begun end.
type Server = listener.Listener[*listener.Admitted]

// NewServer returns a server for l. It has at most a quarter of the process's file descriptors, so
// that connections to the old Redis always find some.
func (m *Mirror) NewServer(l net.Listener, descriptors uint64) *Server {
	conns := int(max(2, min(maxConns, descriptors/4)))
	hosts := hostname.NewCheck(nil, false, hostname.IsLoopback(l.Addr().String()))
	web := &http.Server{Handler: m.Handler(hosts), ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, c.(*listener.Admitted).Client)
		}}
	return listener.New(listener.Options[*listener.Admitted]{
		Sockets: []*listener.Socket{{Listener: l,
			Conns: listener.NewConns(conns, conns/2, &m.bodies)}},
		Make: func(a *listener.Admitted) *listener.Admitted { return a },
		Run:  web.Serve, Stop: func(ctx context.Context) error { return stop(ctx, web) },
		Reject: rejection, Logger: slog.New(slog.DiscardHandler)})
}

// stop lets requests that have begun end, until ctx ends.
func stop(ctx context.Context, web *http.Server) error {
	err := web.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return web.Close() // connections of clients that don't finish their request
	}
	return err
}

// clientKey is the key of a connection's client in the context of its requests.
type clientKey struct{}

// bodiesOf returns the sender's share of the bytes of bodies.
func (m *Mirror) bodiesOf(r *http.Request) *listener.Share {
	if c, ok := r.Context().Value(clientKey{}).(*listener.Client); ok {
		return &c.Shares[0]
	}
	return m.bodies.NewShare()
}

// rejection answers 429 on a connection that is turned away.
func rejection(why string) []byte {
	return []byte("HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n" +
		"Content-Type: text/plain\r\n\r\n" + why + "\n")
}
