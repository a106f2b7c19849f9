package redistest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"twotier.dev/twotier/internal/testing/testca"
)

// Option changes how a server is started.
type Option func(*config)

// config is the result of the options.
type config struct {
	aof        bool
	user, pass string
	tls        bool
	tlsFiles   TLSFiles // if empty, the server makes its own
	unix       bool
	lines      []string
	// args follow the configuration file on the command line.
	args []string
	// within precedes the program on the command line, and host is the address it then listens on.
	within []string
	host   string
	// cluster is set for a node of a Redis Cluster. Its bus port, 10000 above its port, must be
	// free too.
	cluster bool
}

// AOF keeps every write in an append-only file that is synced before the reply, so that
// [Server.Restart] finds it.
func AOF() Option { return func(c *config) { c.aof = true } }

// MaxMemory limits the data to the given number of bytes; writes beyond it are refused
// (noeviction).
func MaxMemory(bytes int64) Option {
	return Config(fmt.Sprintf("maxmemory %d", bytes), "maxmemory-policy noeviction")
}

// ACL admits only the given user, with all permissions. For the user "default" clients only need
// the password.
func ACL(user, password string) Option {
	return func(c *config) { c.user, c.pass = user, password }
}

// TLS serves TLS only, with a certificate for 127.0.0.1 and localhost from a CA made for this
// server: see [Server.TLS].
func TLS() Option { return func(c *config) { c.tls = true } }

// UnixSocket serves on a Unix socket only.
func UnixSocket() Option { return func(c *config) { c.unix = true } }

// Within starts a single server by a command that takes the program and its arguments, such as ip
// netns exec NAME. The server listens at the given address instead of 127.0.0.1.
func Within(host string, command ...string) Option {
	return func(c *config) { c.host, c.within = host, command }
}

// Config adds lines to the configuration file. They override the lines before them.
func Config(lines ...string) Option {
	return func(c *config) { c.lines = append(c.lines, lines...) }
}

// configFile returns the text of the configuration file. It has only settings that Redis 7.0 and
// all later servers know.
func (s *Server) configFile() string {
	c := s.cfg
	lines := []string{
		"bind " + s.host(),
		"dir " + strconv.Quote(s.dir),
		"daemonize no",
		`logfile ""`,
	}
	lines = append(lines, s.portLines()...)
	if c.host != "" {
		lines = append(lines, "protected-mode no") // only tests can reach it
	}
	if !c.sentinel() {
		lines = append(lines, s.dataLines()...)
	}
	lines = append(lines, c.lines...)
	return strings.Join(lines, "\n") + "\n"
}

// portLines returns the settings for where the server listens.
func (s *Server) portLines() []string {
	switch {
	case s.cfg.unix:
		return []string{"port 0", "unixsocket " + strconv.Quote(s.Addr()), "unixsocketperm 700"}
	case s.cfg.tls:
		return []string{
			"port 0", fmt.Sprintf("tls-port %d", s.port),
			"tls-ca-cert-file " + strconv.Quote(s.tls.CA),
			"tls-cert-file " + strconv.Quote(s.tls.Cert),
			"tls-key-file " + strconv.Quote(s.tls.Key),
			"tls-auth-clients optional",
		}
	default:
		return []string{fmt.Sprintf("port %d", s.port)}
	}
}

// dataLines returns the settings that a sentinel doesn't know.
func (s *Server) dataLines() []string {
	c := s.cfg
	lines := []string{
		`save ""`,
		// A replica's first copy starts at once instead of after five seconds.
		"repl-diskless-sync yes", "repl-diskless-sync-delay 0",
		// CLUSTER SLOTS hides a replica until its offset has moved. Without writes that takes a
		// ping.
		"repl-ping-replica-period 1",
		// A script that is running while the machine stands still must not cause BUSY replies.
		"lua-time-limit 600000",
	}
	if c.aof {
		lines = append(lines, "appendonly yes", "appendfsync always")
	}
	if c.user != "" {
		lines = append(lines, fmt.Sprintf("user %q on %q ~* &* +@all", c.user, ">"+c.pass),
			fmt.Sprintf("masteruser %q", c.user), fmt.Sprintf("masterauth %q", c.pass))
		if c.user != "default" {
			lines = append(lines, "user default off")
		}
	}
	if c.tls {
		lines = append(lines, "tls-replication yes", "tls-cluster yes")
	}
	if c.cluster {
		lines = append(lines, "cluster-enabled yes", "cluster-config-file nodes.conf",
			"cluster-announce-ip "+loopback,
			fmt.Sprintf("cluster-node-timeout %d", nodeTimeout.Milliseconds()),
			"cluster-replica-validity-factor 0", "cluster-allow-replica-migration no")
	}
	return lines
}

// sentinel reports whether the process is a sentinel rather than a server that holds data.
func (c config) sentinel() bool { return len(c.args) > 0 && c.args[0] == "--sentinel" }

// newClient returns a client that never sends a command twice.
func (s *Server) newClient() (*redis.Client, error) {
	opt := &redis.Options{
		Addr:            s.Addr(),
		Username:        s.cfg.user,
		Password:        s.cfg.pass,
		MaxRetries:      -1,
		DialerRetries:   1,
		PoolSize:        1,
		DisableIdentity: true,
		ReadTimeout:     commandTimeout,
		WriteTimeout:    commandTimeout,

		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.cfg.unix {
		opt.Network = "unix"
	}
	if s.cfg.tls {
		var err error
		if opt.TLSConfig, err = s.tls.clientConfig(); err != nil {
			return nil, err
		}
	}
	return redis.NewClient(opt), nil
}

// Client returns a client with the defaults of go-redis, closed with the test.
func (s *Server) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	opt, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dial returns an error unless the server accepts connections. Don't use the go-redis client for
// this: after a failed dial it returns the same error from memory for up to a second.
func (s *Server) dial() error {
	network := "tcp"
	if s.cfg.unix {
		network = "unix"
	}
	conn, err := net.DialTimeout(network, s.Addr(), commandTimeout)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Do sends one command, without retries, and waits a minute at most for the reply.
func (s *Server) Do(args ...any) *redis.Cmd {
	cmd := redis.NewCmd(context.Background(), args...)
	_ = s.send(cmd) // cmd has the error
	return cmd
}

func (s *Server) send(cmd redis.Cmder) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	return client.Process(ctx, cmd)
}

// TLSFiles are the paths of the PEM files of a server started with [TLS]. A client may present the
// certificate too.
type TLSFiles struct {
	CA, Cert, Key string
}

// writeTLSFiles makes a CA and a certificate signed by it, and writes both and the certificate's
// key into dir.
func writeTLSFiles(dir string) (TLSFiles, error) {
	files := TLSFiles{
		CA:   filepath.Join(dir, "ca.pem"),
		Cert: filepath.Join(dir, "cert.pem"),
		Key:  filepath.Join(dir, "key.pem"),
	}
	ca, err := testca.New()
	if err != nil {
		return files, err
	}
	cert, key, err := ca.Issue(2, time.Now().Add(24*time.Hour))
	if err != nil {
		return files, err
	}
	for path, text := range map[string][]byte{files.CA: ca.PEM, files.Cert: cert, files.Key: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return files, fmt.Errorf("write certificates: %w", err)
		}
	}
	return files, nil
}

// clientConfig returns a configuration that trusts the CA of the files.
func (f TLSFiles) clientConfig() (*tls.Config, error) {
	ca, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read CA: no certificate in %s", f.CA)
	}
	return &tls.Config{RootCAs: roots, ServerName: loopback, MinVersion: tls.VersionTLS12}, nil
}

// Ports are drawn from below the ephemeral range of Linux (32768) and macOS (49152), so that no
// outgoing connection can take the port of a server that is down and about to be restarted. Bus
// ports lie 10000 above, clear of both.
const (
	firstPort = 11000
	ports     = 10000
	busOffset = 10000
)

const loopback = "127.0.0.1"

// Reserve returns an address of this machine that no other test uses until tb ends.
func Reserve(tb testing.TB) (address string) {
	tb.Helper()
	port, held, err := reserve(false)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = held.Close() }) // which only unlocks it
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}

// reserve returns a port that is free at the moment, and that no other server of these tests, in
// any process, gets before held is closed: a server that is down finds it free when it comes back.
// With bus, its bus port is free too. A process outside of the tests may take it, so the caller
// must be ready to try again.
func reserve(bus bool) (port int, held *os.File, err error) {
	for range 1000 {
		port = firstPort + rand.IntN(ports)
		if held, err = hold(port); err != nil {
			return 0, nil, err
		}
		if held == nil {
			continue
		}
		if isFree(port) && (!bus || isFree(port+busOffset)) {
			return port, held, nil
		}
		if err := held.Close(); err != nil {
			return 0, nil, err
		}
	}
	return 0, nil, fmt.Errorf("no free port in %d..%d", firstPort, firstPort+ports-1)
}

// hold locks the file of a port. It returns nil if it is locked already. Locks end with the
// process.
func hold(port int) (*os.File, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprint("redistest-ports-", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil, file.Close()
	}
	return file, nil
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
