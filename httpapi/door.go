package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"twotier.dev/twotier/httpapi/token"
)

// place says at which kinds of door a route is served.
type place uint8

const (
	front    place = 1 << iota // the address of Options.Listen
	office                     // the address of Options.Admin if set, otherwise the front
	backdoor                   // the address of Options.PeerListen if set, otherwise the front
)

// door is an address that the server listens on, with the routes served there.
type door struct {
	address string
	// allowance is for the clients of this door, so that strangers at one door can't keep anybody
	// out of another.
	allowance *allowance
	routes    map[string]route
	hosts     hosts
	listener  net.Listener
}

// ListenError says which address the server can't listen on.
type ListenError struct {
	// Address is the address from the options.
	Address string
	Err     error
}

// Error names the address.
func (e *ListenError) Error() string { return fmt.Sprintf("listen on %s: %v", e.Address, e.Err) }

// Unwrap returns the reason.
func (e *ListenError) Unwrap() error { return e.Err }

// makeDoors makes the doors. The first one is the public one.
func (s *Server) makeDoors() []*door {
	everyone := &door{address: s.opts.Listen}
	doors, open := []*door{everyone}, front|office|backdoor
	at := map[*door]place{}
	if s.opts.Admin != "" {
		d := &door{address: s.opts.Admin}
		doors, at[d], open = append(doors, d), office, open&^office
	}
	if s.opts.PeerListen != "" {
		d := &door{address: s.opts.PeerListen}
		doors, at[d], open = append(doors, d), backdoor, open&^backdoor
	}
	at[everyone] = open
	for _, d := range doors {
		d.allowance = s.allowance
		if d != everyone {
			conns := InnerConns(s.opts.MaxConns)
			d.allowance = newAllowance(conns, conns, s.opts.MaxMemory/16)
		}
		d.hosts = newHosts(&s.opts, isLoopback(d.address))
		d.routes = map[string]route{}
		for path, r := range s.routes {
			if r.at&at[d] != 0 {
				d.routes[path] = r
			}
		}
	}
	return doors
}

// listen opens all doors, or none.
func (s *Server) listen(ctx context.Context) error {
	for _, d := range s.doors {
		if d.listener != nil {
			continue // passed in by OpenOn
		}
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.address)
		if err != nil {
			err = errors.Join(&ListenError{d.address, err}, s.shutDoors())
			for _, d := range s.doors {
				d.listener = nil
			}
			return err
		}
		d.listener = ln
	}
	return nil
}

func (s *Server) shutDoors() (err error) {
	for _, d := range s.doors {
		if d.listener != nil {
			err = errors.Join(err, d.listener.Close())
		}
	}
	return err
}

// doorOf returns the door through which a request came.
func (s *Server) doorOf(ctx *fasthttp.RequestCtx) *door {
	if c, ok := ctx.Conn().(*conn); ok && c.door != nil {
		return c.door
	}
	return s.doors[0]
}

// secure adds TLS to a connection, if TLS is configured.
func (s *Server) secure(nc net.Conn) net.Conn {
	if s.opts.TLS == nil {
		return nc
	}
	return tls.Server(nc, s.opts.TLS)
}

// Addr returns the address that the server listens on, or nil before Open.
func (s *Server) Addr() net.Addr { return s.addrOf(0) }

// AdminAddr returns the address of Options.Admin, or nil before Open or if there is none.
func (s *Server) AdminAddr() net.Addr {
	if s.opts.Admin == "" {
		return nil
	}
	return s.addrOf(1)
}

// PeerAddr returns the address where other nodes reach this one, or nil before Open.
func (s *Server) PeerAddr() net.Addr {
	if s.opts.PeerListen == "" {
		return s.Addr()
	}
	return s.addrOf(len(s.doors) - 1)
}

func (s *Server) addrOf(i int) net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doors[i].listener == nil {
		return nil
	}
	return s.doors[i].listener.Addr()
}

// addProfiles adds the profiles of package net/http/pprof, which reveal memory contents and the
// flags of the process. They are only served at a door of their own, and only to tokens for all
// namespaces. They end when the server closes, whatever duration was asked for.
func (s *Server) addProfiles(routes map[string]route) {
	profiles := map[string]http.HandlerFunc{"cmdline": pprof.Cmdline, "profile": pprof.Profile,
		"trace": pprof.Trace}
	for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
		profiles[name] = pprof.Handler(name).ServeHTTP
	}
	for name, profile := range profiles {
		show := fasthttpadaptor.NewFastHTTPHandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			profile(w, r.WithContext(s.ending))
		})
		routes["/debug/pprof/"+name] = route{need: token.Admin, guarded: true, at: office,
			handler: func(ctx *fasthttp.RequestCtx) *problem {
				if p := everywhere(grantOf(ctx)); p != nil {
					return p
				}
				show(ctx)
				return nil
			}}
	}
}
