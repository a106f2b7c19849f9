package httpapi

import (
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/listener"
)

// apiSet is a set of kinds of endpoints that serve a route.
type apiSet uint8

const (
	clientAPI apiSet = 1 << iota // Options.Listen
	adminAPI                     // Options.Admin if set, otherwise Options.Listen
	peerAPI                      // Options.PeerListen if set, otherwise Options.Listen
)

// endpoint is an address that the server listens on, with the routes served there.
type endpoint struct {
	listener.Socket

	// budget is for the clients of this endpoint, so that strangers on one endpoint can't keep
	// anybody out of another.
	budget *memory.Budget
	routes map[string]route
	hosts  hostname.Check
}

// makeEndpoints makes the endpoints. The first one is the public one.
func (s *Server) makeEndpoints() []*endpoint {
	everyone := &endpoint{Socket: listener.Socket{Flag: "listen", Address: s.opts.Listen}}
	endpoints, open := []*endpoint{everyone}, clientAPI|adminAPI|peerAPI
	at := map[*endpoint]apiSet{}
	if s.opts.Admin != "" {
		d := &endpoint{Socket: listener.Socket{Flag: "admin", Address: s.opts.Admin}}
		endpoints, at[d], open = append(endpoints, d), adminAPI, open&^adminAPI
	}
	if s.opts.PeerListen != "" {
		d := &endpoint{Socket: listener.Socket{Flag: "peer", Address: s.opts.PeerListen}}
		endpoints, at[d], open = append(endpoints, d), peerAPI, open&^peerAPI
	}
	at[everyone] = open
	for _, d := range endpoints {
		d.budget = s.budget
		if d != everyone {
			conns := InnerConns(s.opts.MaxConns)
			d.budget = memory.NewBudget(listener.Limits{MaxConns: conns, MaxConnsPerAddress: conns,
				MaxMemory: s.opts.MaxMemory / 8})
		}
		d.Conns = d.budget.Conns
		d.hosts = hostname.NewCheck(s.opts.Hosts, s.opts.Tokens != nil,
			hostname.IsLoopback(d.Address))
		d.routes = map[string]route{}
		for path, r := range s.routes {
			if r.put != nil && r.put.at&at[d] == 0 {
				r.put = nil
			}
			if r.at&at[d] != 0 {
				d.routes[path] = r
			}
		}
	}
	return endpoints
}

// AdminAddr returns the address of Options.Admin, or nil before Open or if there is none.
func (s *Server) AdminAddr() net.Addr {
	if s.opts.Admin == "" {
		return nil
	}
	return s.AddrOf(&s.endpoints[1].Socket)
}

// PeerAddr returns the address where other nodes reach this one, or nil before Open.
func (s *Server) PeerAddr() net.Addr {
	if s.opts.PeerListen == "" {
		return s.Addr()
	}
	return s.AddrOf(&s.endpoints[len(s.endpoints)-1].Socket)
}

// addProfiles adds the profiles of package net/http/pprof, which reveal memory contents and the
// flags of the process. They are only served on a separate endpoint, and only to tokens for all
// namespaces. They end when the server closes, whatever duration the request names.
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
		routes["/debug/pprof/"+name] = route{need: twotier.RoleAdmin, guarded: true, all: true,
			at: adminAPI,
			handler: func(ctx *fasthttp.RequestCtx) *wire.Problem {
				show(ctx)
				return nil
			}}
	}
}
