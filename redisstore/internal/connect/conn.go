package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"twotier.dev/twotier/internal/durations"
	"twotier.dev/twotier/internal/redisurl"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
)

// Options configure a [Conn].
type Options struct {
	// URL is the address of Redis, see package redisurl.
	URL string
	// Prefix is the first part of all keys.
	Prefix layout.Prefix
	// Password returns the password for each new connection. Nil means the one in URL.
	Password func() (string, error)
	// TLS is used with the rediss schemes; nil means the system's root certificates.
	TLS *tls.Config
	// Timeout bounds connecting, and reading or writing one command.
	Timeout time.Duration
}

// Conn is a client of the servers of one URL. It is safe for concurrent use, except for ExplainTLS
// and KnownTLSMistake.
type Conn struct {
	Client redis.UniversalClient
	URL    redisurl.URL
	// Cluster means that the servers form a Redis Cluster.
	Cluster bool
	// Delivered counts the reads that returned data, from all servers.
	Delivered atomic.Int64
	Condition

	prefix     layout.Prefix
	encryption encryption
	policies   sync.Map // the last known maxmemory-policy of every server, by name
}

// New returns a client that has not connected yet.
func New(opt Options) (*Conn, error) {
	where, err := redisurl.Parse(opt.URL)
	if err != nil {
		return nil, err
	}
	c := &Conn{URL: where, Cluster: where.Kind == redisurl.Cluster,
		Condition: Condition{failed: errors.New("not connected yet")},
		prefix:    opt.Prefix, encryption: encryption{secure: where.TLS}}
	if !where.Unix {
		c.encryption.servers = where.Addresses
	}
	c.Client = newClient(driverOptions(&opt, &where), opt.Password)
	switch client := c.Client.(type) {
	case *redis.ClusterClient:
		client.OnNewNode(func(node *redis.Client) { scripts.AddHooks(node, &c.Delivered, true) })
	case *redis.Client:
		scripts.AddHooks(client, &c.Delivered, false)
	}
	return c, nil
}

// Primary returns the server that takes writes to a key.
func (c *Conn) Primary(ctx context.Context, key string) (*redis.Client, error) {
	if client, ok := c.Client.(*redis.ClusterClient); ok {
		return client.MasterForKey(ctx, key)
	}
	return c.Client.(*redis.Client), nil
}

// EachPrimary calls fn for each server that takes writes.
func (c *Conn) EachPrimary(
	ctx context.Context, fn func(context.Context, *redis.Client) error,
) error {
	if client, ok := c.Client.(*redis.ClusterClient); ok {
		return client.ForEachMaster(ctx, fn)
	}
	return fn(ctx, c.Client.(*redis.Client))
}

// Name returns the name of a server that takes writes: in a cluster its address.
func (c *Conn) Name(node *redis.Client) string {
	if c.Cluster {
		return node.Options().Addr
	}
	return c.URL.Hosts // with sentinels the driver has no address for the server
}

// driverOptions returns the driver's options. Its retries are off: a count that the driver sent
// twice would be counted twice. A cluster's client sends again in spite of that, see package
// scripts.
func driverOptions(opt *Options, where *redisurl.URL) *redis.UniversalOptions {
	o := &redis.UniversalOptions{
		Addrs: where.Addresses, MasterName: where.Master,
		IsClusterMode: where.Kind == redisurl.Cluster,
		DB:            where.Database, Username: where.Username, Password: where.Password,
		SentinelUsername: where.SentinelUsername, SentinelPassword: where.SentinelPassword,
		MaxRetries: -1, MaxRedirects: 3, Protocol: 2, ContextTimeoutEnabled: true,
		DisableIdentity: true,
		DialTimeout:     opt.Timeout, ReadTimeout: opt.Timeout, WriteTimeout: opt.Timeout,
		PoolTimeout:              opt.Timeout,
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if where.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if opt.TLS != nil {
			o.TLSConfig = opt.TLS.Clone()
		}
	}
	if where.Unix {
		dialer := &net.Dialer{Timeout: opt.Timeout}
		o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", addr)
		}
	}
	return o
}

// newClient is redis.NewUniversalClient with a function for the password, for which the shared
// options have no field, and with the database of a cluster, which the driver ignores.
func newClient(o *redis.UniversalOptions, password func() (string, error)) redis.UniversalClient {
	var credentials func(context.Context) (string, string, error)
	if password != nil {
		credentials = func(context.Context) (string, string, error) {
			text, err := password()
			return o.Username, text, err
		}
	}
	switch {
	case o.MasterName != "":
		f := o.Failover()
		f.CredentialsProviderContext = credentials
		return redis.NewFailoverClient(f)
	case o.IsClusterMode:
		c := o.Cluster()
		c.CredentialsProviderContext = credentials
		if o.DB != 0 {
			c.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
				return conn.Select(ctx, o.DB).Err()
			}
		}
		return redis.NewClusterClient(c)
	}
	single := o.Simple()
	single.CredentialsProviderContext = credentials
	return redis.NewClient(single)
}

// Condition records whether Redis can be used, and how fast it is.
type Condition struct {
	// RoundTrips is the number of pipelines sent.
	RoundTrips atomic.Int64
	// Times has how long pipelines with scripts took.
	Times durations.Histogram
	// RTT is the shortest round trip of the last measurement of the clock, in nanoseconds.
	RTT atomic.Int64

	mu     sync.Mutex
	failed error // why Redis could not be used at the last exchange, nil if it could
	silent error // why it has not returned its time since, nil if it has
}

// SetFailed records why the last exchange failed, nil if it did not.
func (c *Condition) SetFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	if err == nil {
		c.silent = nil
	}
}

// SetClockFailure records why Redis did not return its time, which is how a node that has nothing
// to exchange learns that Redis is gone. A later success clears only this error: Redis may still
// refuse exchanges.
func (c *Condition) SetClockFailure(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = err
}

// Failure returns why Redis can't be used right now, or nil if it can.
func (c *Condition) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.failed, c.silent)
}

// safePolicy is the maxmemory-policy under which nothing is evicted.
const safePolicy = "noeviction"

// CheckPolicy logs that a server may evict counts when its memory is full, or no longer does, once
// for each change. It ignores a server that forbids INFO or does not answer.
func (c *Conn) CheckPolicy(ctx context.Context, logger *slog.Logger) {
	_ = c.EachPrimary(ctx, func(ctx context.Context, node *redis.Client) error { // it never fails
		info, err := node.Info(ctx, "memory").Result()
		_, rest, ok := strings.Cut(info, "maxmemory_policy:")
		policy, _, _ := strings.Cut(rest, "\r\n")
		if err != nil || !ok {
			return nil
		}
		server := c.Name(node)
		before, known := c.policies.Swap(server, policy)
		switch {
		case before == policy || !known && policy == safePolicy:
		case policy == safePolicy:
			logger.Info("Redis no longer evicts counts", "server", server, "policy", policy)
		default:
			logger.Warn("Redis may evict counts when its memory is full; set "+
				"maxmemory-policy to noeviction", "server", server, "policy", policy)
		}
		return nil
	})
}

// The errors that package redisstore has under the same names.
var (
	ErrMismatch = errors.New("this Redis is not compatible")
	ErrRejected = errors.New("this Redis rejects these credentials")
)

// rejections are the prefixes, after ERR if there is one, of a server's errors for clients without
// access.
var rejections = [...]string{
	"WRONGPASS", "NOAUTH", "NOPERM", "DENIED", "AUTH", "Client sent AUTH", "invalid password",
	"DB index",
	"invalid DB index", "SELECT is not allowed", "This instance has cluster support disabled",
}

// Reject adds ErrRejected to an error that will not go away by itself.
func Reject(err error) error {
	if err == nil || errors.Is(err, ErrMismatch) {
		return err
	}
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	told := slices.ContainsFunc(rejections[:], func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix)
	})
	// The other side's TLS alert has a type that can't be named.
	if told || errors.As(err, &untrusted) || errors.As(err, &plain) ||
		strings.Contains(err.Error(), "remote error: tls: ") {
		return fmt.Errorf("%w: %w%s", ErrRejected, err, databaseRemedy(err))
	}
	return err
}

// databaseRemedy returns the remedy for a server's refusal of the database in the URL, or "" if err
// is another error.
func databaseRemedy(err error) string {
	switch {
	case redis.HasErrorPrefix(err, "SELECT is not allowed"):
		return "; a Redis Cluster has only database 0: leave the database out of the URL, and " +
			"set --redis-prefix to keep services apart"
	case redis.HasErrorPrefix(err, "DB index"), redis.HasErrorPrefix(err, "invalid DB index"):
		return "; name a lower number, have the server make more (databases or, in a cluster of " +
			"Valkey 9, cluster-databases), or leave it out of the URL and set --redis-prefix"
	}
	return ""
}

const (
	// encryptionTimeout bounds how long servers are probed for TLS.
	encryptionTimeout = time.Second
	// encryptionAge is how long the result of a probe is used.
	encryptionAge = 10 * time.Second
)

// encryption finds out whether servers that do not answer would do so with TLS, or without. Either
// kind of server mistakes the other's first bytes for an unfinished message, or drops the client,
// which looks like a server that is not up yet.
type encryption struct {
	secure  bool     // the URL asks for TLS
	servers []string // the addresses of the URL, none of a Unix socket
	asked   time.Time
	mistake error // found by the last probe, nil if nothing is wrong
}

// ExplainTLS returns a mistake about TLS in place of the error of a first contact, if there is one.
func (c *Conn) ExplainTLS(ctx context.Context, err error) error {
	e := &c.encryption
	if err == nil || errors.Is(err, ErrRejected) || errors.Is(err, ErrMismatch) {
		return err
	}
	if time.Since(e.asked) >= encryptionAge {
		e.mistake = e.probeServers(ctx)
		e.asked = time.Now()
	}
	return cmp.Or(e.mistake, err)
}

// KnownTLSMistake returns a mistake that ExplainTLS has found recently, so that callers need not
// wait for a timeout again.
func (c *Conn) KnownTLSMistake() error {
	e := &c.encryption
	if time.Since(e.asked) >= encryptionAge {
		return nil
	}
	return e.mistake
}

func (e *encryption) probeServers(ctx context.Context) error {
	// The failed attempt may have used up all of its time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), encryptionTimeout)
	defer cancel()
	for _, address := range e.servers {
		switch {
		case e.secure && speaksPlain(ctx, address):
			return fmt.Errorf("%w: %s answers without TLS, and rediss asks for it: "+
				"write redis, or the port that has TLS", ErrRejected, address)
		case !e.secure && speaksTLS(ctx, address):
			return fmt.Errorf("%w: %s answers with TLS only: write rediss in place of redis",
				ErrRejected, address)
		}
	}
	return nil
}

// speaksPlain reports whether a server answers a command in Redis's protocol without TLS, even if
// with an error.
func speaksPlain(ctx context.Context, address string) bool {
	conn, err := dial(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	first := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	_, err = conn.Read(first)
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// speaksTLS reports whether a server takes part in a handshake, or ends it the way TLS does.
func speaksTLS(ctx context.Context, address string) bool {
	conn, err := dial(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	// Any certificate will do: nothing is sent.
	anyone := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	err = tls.Client(conn, anyone).HandshakeContext(ctx)
	var plain tls.RecordHeaderError
	return err == nil || !errors.As(err, &plain) &&
		strings.Contains(err.Error(), "remote error: tls: ")
}

// dial connects. The connection is closed when ctx ends.
func dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if by, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(by)
	}
	return conn, err
}
