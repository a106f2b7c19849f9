package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime/debug"
	"sort"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/reload"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/token"
	"twotier.dev/twotier/internal/version"
	"twotier.dev/twotier/syncer"
)

// addResp makes the server for Redis clients, if configured: with the tokens, the certificate and
// the limits of the HTTP API, whose metrics include the server's.
func (s *server) addResp() error {
	if s.cfg.Resp == "" {
		return nil
	}
	server, err := resp.New(resp.Options{
		Service: s.node, Rules: &s.book, Shadow: s.book.Shadow, Holds: &s.holds,
		Verdicts: s.node.Verdicts(), Version: version.String(),
		Listen: s.cfg.Resp, Tokens: s.tokens, AdminToken: s.cfg.AdminToken,
		Limits: s.limitsOf(resp.Defaults()),
	})
	s.doors = append(s.doors, door{"resp", server, server})
	return err
}

// addEnvoy makes the rate limiter for Envoy, which the HTTP API serves as JSON, and its gRPC
// server, if configured.
func (s *server) addEnvoy() error {
	s.limiter = envoy.NewLimiter(s.node, &s.book, s.node.Verdicts())
	s.limiter.Warnings, s.limiter.Ladders = s.warnings, s.store.ladders
	if s.cfg.GRPC == "" {
		return nil
	}
	server, err := envoy.New(envoy.Options{
		Limiter: s.limiter, Ready: func() error { _, err := s.node.Ready(); return err },
		Listen: s.cfg.GRPC, Tokens: s.tokens, AdminToken: s.cfg.AdminToken,
		Limits: s.limitsOf(envoy.Defaults()), Trusted: s.cfg.TrustedProxies, Tracer: s.tracer,
		MaxConnAge: s.cfg.GRPCMaxConnectionAge, MaxConnAgeGrace: s.cfg.GRPCMaxConnectionAgeGrace,
	})
	s.doors = append(s.doors, door{"grpc", server, server})
	return err
}

// limitsOf returns the limits of a door: the limits of the HTTP API. The memory caps the number of
// connections unless it is configured.
func (s *server) limitsOf(of listener.Defaults) listener.Limits {
	l := s.limits
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
	// collector has its metrics; nil for HTTP, whose page shows them all.
	collector prometheus.Collector
}

type doorServer interface {
	Open(ctx context.Context) error
	Addr() net.Addr
	Close(ctx context.Context) error
}

// openDoors starts to serve all protocols.
func (s *server) openDoors(ctx context.Context) error {
	for _, d := range s.doors {
		if err := explainTaken(d.server.Open(ctx), "", ""); err != nil {
			return err
		}
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

// addTokens reads the tokens of the configuration, if there are any. It logs a warning if there are
// none and --insecure is set.
func (s *server) addTokens() error {
	if s.cfg.Tokens == "" {
		if s.cfg.Insecure {
			s.log.Warn("--insecure: whoever can connect may count, read and reset", "listen",
				s.cfg.Listen)
		}
		return nil
	}
	store := new(token.Store)
	s.tokens = store
	return s.files.Add(reload.Source{Name: "--tokens", Paths: []string{s.cfg.Tokens},
		Withdrawn: true, Apply: func(contents [][]byte) error {
			return store.Load(contents[0])
		}})
}

// addTLS reads the certificate, if one is configured.
func (s *server) addTLS() error {
	if s.cfg.TLSCert == "" {
		return nil
	}
	s.certs = new(certs.Store)
	paths := []string{s.cfg.TLSCert, s.cfg.TLSKey}
	if s.cfg.TLSClientCA != "" {
		paths = append(paths, s.cfg.TLSClientCA)
	}
	return s.files.Add(reload.Source{Name: "--tls-cert", Paths: paths,
		Apply: func(contents [][]byte) error {
			var authorities []byte
			if len(contents) > 2 {
				authorities = contents[2]
			}
			if err := s.certs.Load(contents[0], contents[1], authorities); err != nil {
				return err
			}
			if end := s.certs.NotAfter(); time.Now().After(end) {
				s.log.Warn("--tls-cert: the certificate has expired: nobody will connect who "+
					"looks at it", "not_after", end)
			}
			return nil
		}})
}

// addSecrets passes the secrets in the file, if one is configured, to all parts that talk to other
// nodes, now and whenever the file changes.
func (s *server) addSecrets(messages *peer.Server) error {
	if s.cfg.ClusterSecretFile == "" {
		return nil
	}
	return s.files.Add(reload.Source{Name: "--cluster-secret-file",
		Paths: []string{s.cfg.ClusterSecretFile}, Apply: func(contents [][]byte) error {
			secrets, err := config.ParseSecrets(contents[0])
			if err != nil {
				return err
			}
			// Receive with a new secret before sending with it: first the server that opens
			// messages, then the clients that seal them.
			messages.SetSecrets(secrets)
			s.peers.SetSecrets(secrets)
			return s.ring.SetSecrets(secrets)
		}})
}

const tokenText = `Prints the line for the file on stdout, and on stderr the token itself, which is
not stored anywhere. It has 256 random bits, and the file only has its SHA-256. A
server reads the file again when it changes, so removing a line withdraws a
token.`

const tokenExamples = `twotier token checkout --namespaces default,login >> tokens.conf
twotier token prometheus --roles read >> tokens.conf
twotier serve --listen :8080 --tokens tokens.conf
TWOTIER_TOKEN=tt_... twotier add alice
echo -n tt_... | sha256sum        # the hash, without this command`

func tokenCommand(o cli.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token NAME [--roles count,read] [--namespaces NS,...]", Long: tokenText,
		Short: "make a token, and its line for --tokens", Example: tokenExamples,
	}
	fs := cmd.Flags()
	roles := fs.String("roles", "count,read", "what it may do, a list of `ROLES`: count "+
		"(add, acquire, distinct), read (count, series, top, cluster, metrics), "+
		"admin (reset, unban, mode, rules, profiles)")
	namespaces := fs.String("namespaces", "*", "for which `NAMESPACES`; * for all")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		line, text, err := newToken(args, *roles, *namespaces)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		if _, err := fmt.Fprintln(o.Stdout, line); err != nil {
			return err
		}
		_, err = fmt.Fprintf(o.Stderr, "the token, shown once: %s\n", text)
		return err
	}
	return cmd
}

// newToken makes a token named by the only argument. It returns the line for the file and the
// token's text.
func newToken(args []string, roles, namespaces string) (line, text string, err error) {
	if len(args) != 1 {
		return "", "", errors.New("want one NAME")
	}
	if err := config.CheckName(args[0]); err != nil {
		return "", "", err
	}
	granted, err := twotier.ParseRoles(roles)
	if err != nil {
		return "", "", fmt.Errorf("--roles: %w", err)
	}
	text, hash := token.New()
	if line, err = token.FormatLine(args[0], hash, granted, namespaces); err != nil {
		return "", "", fmt.Errorf("--namespaces: %w", err)
	}
	return line, text, nil
}

const mebibyte = 1 << 20

// maxResident returns the most memory, in bytes, that the process may have resident, whatever
// clients send: 1.3 times --max-memory plus 64 MiB.
func maxResident(cfg config.Store) int64 {
	return cfg.MaxMemory + cfg.MaxMemory/10*3 + 64*mebibyte
}

// webMemory returns the part of maxResident that is for requests. The rest is for the counters,
// which may exceed --max-memory by a quarter, and for the program itself.
func webMemory(cfg config.Store) int64 { return cfg.MaxMemory/20 + 40*mebibyte }

// holdMemory returns the part of --max-memory that is for holds to release at their ends.
func holdMemory(cfg config.Store) int64 { return cfg.MaxMemory / 32 }

// heldMemory returns the part of --max-memory that is for what operations on Redis itself hold of
// their keys. Without Redis it leaves room for requests.
func heldMemory(cfg config.Store) int64 { return cfg.MaxMemory / 16 }

// counterMemory returns the part of --max-memory that is for the counters: all but holdMemory and
// heldMemory.
func counterMemory(cfg config.Store) int64 {
	return cfg.MaxMemory - holdMemory(cfg) - heldMemory(cfg)
}

// newLimits returns the limits on the memory and the connections of the HTTP server. secured is nil
// without TLS.
func newLimits(cfg config.Config, secured *certs.Store, log *slog.Logger) (l listener.Limits,
	err error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return l, fmt.Errorf("RLIMIT_NOFILE: %w", err)
	}
	doors := 1 + countSet(cfg.Resp, cfg.GRPC) // they share memory and connections in equal parts
	l = listener.Limits{RequestTimeout: cfg.RequestTimeout, Logger: log,
		MaxMemory: webMemory(cfg.Store) / int64(doors),
		MaxConns:  cfg.MaxConnections, MaxConnsPerAddress: cfg.MaxConnectionsPerAddress}
	if secured != nil {
		l.TLS = secured.Server()
	}
	// Connections get three quarters of the file descriptors. The rest is for Redis, other nodes,
	// and files that must be opened when all connections are in use.
	share := int(min(files.Cur, math.MaxInt32)/4*3) / doors
	most := connsWithin(share, countSet(cfg.Admin, cfg.Peer))
	flag, asked := "max-connections", l.MaxConns
	if asked == 0 {
		flag, asked = "max-connections-per-address", l.MaxConnsPerAddress
		fit := httpapi.Defaults().ConnsFor(l.MaxMemory, l.TLS != nil)
		l.MaxConns = max(1, min(most, fit), asked)
	}
	if asked > most {
		return l, fmt.Errorf("--%s: %d are more than the %d that RLIMIT_NOFILE, which is %d, is "+
			"enough for; raise it (ulimit -n, LimitNOFILE=)",
			flag, asked, most, files.Cur)
	}
	return l, nil
}

// countSet returns how many of some addresses are set.
func countSet(addresses ...string) (n int) {
	for _, address := range addresses {
		if address != "" {
			n++
		}
	}
	return n
}

// connsWithin returns the largest number of connections for --listen such that all listeners
// together have at most files connections. inner is the number of other listeners.
func connsWithin(files, inner int) int {
	return sort.Search(files, func(n int) bool { return n+1+inner*httpapi.InnerConns(n+1) > files })
}

// limitHeap sets the garbage collector's memory limit so that the process stays within maxResident
// and within its cgroup's limit. A GOMEMLIMIT in the environment takes precedence.
func limitHeap(cfg config.Store, cgroup memlimit.Provider, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	most := maxResident(cfg)
	group, err := cgroup()
	switch {
	case errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrNoLimit),
		errors.Is(err, memlimit.ErrCgroupsNotSupported):
	case err != nil:
		log.Warn("can't read the memory limit of the cgroup: set GOMEMLIMIT if it has one",
			"error", err)
	case group < uint64(most):
		log.Warn("the cgroup may have less memory than --max-memory can take: lower the one or "+
			"raise the other",
			"cgroup", group, "max_memory", cfg.MaxMemory, "resident", most)
		most = int64(group / 10 * 9)
	}
	debug.SetMemoryLimit(max(most-offHeapMemory(cfg), 32*mebibyte))
}

// offHeapMemory returns the memory of the process that the garbage collector does not see: the
// program and, if they are off the heap, the counters.
func offHeapMemory(cfg config.Store) int64 {
	const program = 28 * mebibyte // 22 at rest
	if !syncer.OffHeap() {
		return program
	}
	return program + counterMemory(cfg)/4*5 // keys in memory may exceed the limit by a quarter
}
