package main

import (
	"context"
	"errors"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/events"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/version"
)

// addResp makes the server for Redis clients, if configured: with the tokens, the certificate and
// the limits of the HTTP API, whose metrics include the server's.
func (s *server) addResp(web *httpapi.Options) error {
	if s.cfg.Resp == "" {
		return nil
	}
	door, err := resp.New(resp.Options{
		Service: s.node, Rules: web.Rules, Shadow: web.Shadow, Holds: web.Holds,
		Verdicts: web.Verdicts, Version: version.String(),
		Listen: s.cfg.Resp, Tokens: web.Tokens, AdminToken: web.AdminToken,
		Limits: s.limitsOf(web, resp.Defaults()),
	})
	if err == nil {
		s.addDoor(web, "resp", door)
	}
	return err
}

// addEnvoy makes the rate limiter for Envoy, which the HTTP API serves as JSON, and its gRPC
// server, if configured.
func (s *server) addEnvoy(web *httpapi.Options, domains envoy.Domains) error {
	limiter := envoy.NewLimiter(s.node, domains, web.Verdicts)
	limiter.Warnings, limiter.Ladders = s.warnings, s.store.ladders
	web.RateLimiter = limiter
	if s.cfg.GRPC == "" {
		return nil
	}
	door, err := envoy.New(envoy.Options{
		Limiter: limiter, Ready: func() error { _, err := s.node.Ready(); return err },
		Listen: s.cfg.GRPC, Tokens: web.Tokens, AdminToken: web.AdminToken,
		Limits: s.limitsOf(web, envoy.Defaults()), Trusted: web.TrustedProxies, Tracer: web.Tracer,
		MaxConnAge: s.cfg.GRPCMaxConnectionAge, MaxConnAgeGrace: s.cfg.GRPCMaxConnectionAgeGrace,
	})
	if err == nil {
		s.addDoor(web, "grpc", door)
	}
	return err
}

// limitsOf returns the limits of a door: the limits of the HTTP API. The memory caps the number of
// connections unless it is configured.
func (s *server) limitsOf(web *httpapi.Options, of listener.Defaults) listener.Limits {
	l := web.Limits
	if s.cfg.MaxConnections == 0 {
		l.MaxConns = min(l.MaxConns, of.ConnsFor(l.MaxMemory, l.TLS != nil))
	}
	l.MaxConnsPerAddress = min(l.MaxConnsPerAddress, l.MaxConns)
	return l
}

// door is a server of clients, by the flag of its address.
type door struct {
	flag   string
	server doorServer
}

// doorServer is the common part of all doors' servers.
type doorServer interface {
	OpenOn(ctx context.Context, inherited net.Listener) error
	Addr() net.Addr
	// Refused returns how many connections and requests were refused because of limits.
	Refused() (connections, requests int64)
	Close(ctx context.Context) error
}

// addDoor adds a door of another protocol than HTTP, and adds its metrics to the metrics page.
func (s *server) addDoor(web *httpapi.Options, flag string, d interface {
	doorServer
	prometheus.Collector
}) {
	s.doors = append(s.doors, door{flag, d})
	web.Collectors = append(web.Collectors, d)
}

// refusedAtDoors returns the refusals by limits before the node saw the request.
func (s *server) refusedAtDoors() []events.Refused {
	var connections, requests int64
	for _, d := range s.doors {
		c, r := d.server.Refused()
		connections, requests = connections+c, requests+r
	}
	return []events.Refused{
		{Why: "there were too many connections, or too many from one address",
			Total: connections},
		{Why: "too much was being read and answered at that moment", Total: requests},
	}
}

// openDoors starts to serve all protocols.
func (s *server) openDoors(ctx context.Context) error {
	inherited := s.inherited
	for _, d := range s.doors {
		if err := explainTaken(d.server.OpenOn(ctx, inherited), "", ""); err != nil {
			return err
		}
		inherited = nil
	}
	return nil
}

// doorAddr returns the address of the door with that flag, or "" if there is none.
func (s *server) doorAddr(flag string) string {
	for _, d := range s.doors {
		if d.flag == flag {
			return d.server.Addr().String()
		}
	}
	return ""
}

// closeDoors finishes the requests in flight on all servers, at the same time.
func (s *server) closeDoors(ctx context.Context) (err error) {
	done := make(chan error, len(s.doors))
	for _, d := range s.doors {
		go func() { done <- d.server.Close(ctx) }()
	}
	for range s.doors {
		err = errors.Join(err, <-done)
	}
	return err
}
