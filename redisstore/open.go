package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/durations"
	"twotier.dev/twotier/internal/redisurl"
	"twotier.dev/twotier/leaparray"
)

// Expiry is how buckets leave Redis once no window needs them.
type Expiry string

// The ways to expire buckets.
const (
	// ExpiryKey makes each writer of a key fold its buckets and delete those too old for any
	// window, and gives the key a time to live. It works with every server.
	ExpiryKey Expiry = "key"
	// ExpiryField gives every field a time to live as well (HPEXPIRE: Redis 7.4, Valkey 9).
	ExpiryField Expiry = "field"
	// ExpiryTairhash keeps buckets in TairHash, a module's hash type that gives every field a time
	// to live. It is experimental: the module is not part of the tests.
	ExpiryTairhash Expiry = "tairhash"
)

// Options configure a [Store]. The zero value of a field means its default.
type Options struct {
	// URL is the address of Redis: redis://[user:password@]host:port[/db], rediss:// for TLS,
	// unix:///path[?db=n], redis+cluster://host:port,host:port,
	// redis+sentinel://host:port,host:port/master[/db] with
	// ?sentinel-user=NAME&sentinel-password=SECRET if the sentinels themselves ask for one;
	// rediss+cluster and rediss+sentinel for TLS. Required.
	URL string
	// Password returns the password for each new connection, in place of the one in URL, so that it
	// can change while connections are open. Default: none.
	Password func() (string, error)
	// TLS is used with the rediss schemes; nil means the system's root certificates.
	TLS *tls.Config
	// Expiry defaults to ExpiryKey.
	Expiry Expiry
	// Timeout bounds connecting, and reading or writing one command. Default: 1 s.
	Timeout time.Duration
	// KeepTimeout bounds how long [Store.Keep] waits for replicas or the disk. Default: 2 s.
	KeepTimeout time.Duration
	// KeepReplicas is how many replicas must have a count before AckReplica acknowledges it, and
	// how many must be connected to each server that takes writes. Default: 1.
	KeepReplicas int
	// Placement must be the same for all users of the data, and is compared with the one in Redis.
	Placement twotier.Placement
	// Ladders holds the ladder of each namespace; "default" serves all that are not listed. Keys
	// and the records stored along with them live as long as the ladders need. Other processes may
	// have different ladders, and fold the same keys by theirs. Required.
	Ladders map[string]*leaparray.Ladder
	// AnySeed takes the hash seed from Redis, and writes the one in Placement there if Redis has
	// none. Until the first probe succeeds no key can be placed: see [Store.Placement].
	AnySeed bool
	// Logger receives changes of state. Default: none.
	Logger *slog.Logger
}

// Store is a connection to Redis. Make one with [New].
type Store struct {
	opt         Options
	client      redis.UniversalClient
	where       redisurl.URL
	cluster     bool // Redis Cluster
	scripts     scripts
	sequenceTTL string
	ready       atomic.Bool
	restores    atomic.Bool // Redis makes keys from payloads
	used        atomic.Bool // a probe has succeeded
	readyMu     sync.Mutex  // held while Redis is probed for the first time, or after it lost data
	encryption  encryption  // under readyMu
	agreed      bool        // a probe has succeeded; the placement does not change any more
	since       string      // sinceField of the seed; "" until that is known
	keepers     keepers
	policies    policies

	delivered  atomic.Int64 // reads that returned data, from all servers
	roundTrips atomic.Int64
	rtt        atomic.Int64 // microseconds
	durations  durations.Histogram

	mu      sync.Mutex
	failed  error    // why Redis could not be used at the last exchange, nil if it could
	silent  error    // why it has not returned its time since, nil if it has
	probing *attempt // the probe under way, if there is one

}

// New checks the options. It does not connect: call [Store.Probe] to find out whether Redis is
// there and can be used.
func New(opt Options) (*Store, error) {
	if opt.Expiry == "" {
		opt.Expiry = ExpiryKey
	}
	if opt.Expiry != ExpiryKey && opt.Expiry != ExpiryField && opt.Expiry != ExpiryTairhash {
		return nil, fmt.Errorf("redisstore: expiry %q, want key, field or tairhash", opt.Expiry)
	}
	if opt.Timeout == 0 {
		opt.Timeout = time.Second
	}
	if opt.KeepTimeout == 0 {
		opt.KeepTimeout = 2 * time.Second
	}
	if opt.KeepReplicas == 0 {
		opt.KeepReplicas = 1
	}
	if opt.Placement.Partitions == 0 {
		opt.Placement.Partitions = twotier.DefaultPartitions
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Ladders[twotier.DefaultNamespace] == nil {
		return nil, errors.New("redisstore: Options.Ladders has no default")
	}
	opt.Ladders = maps.Clone(opt.Ladders)
	s := &Store{opt: opt, scripts: newScripts(opt.Expiry), failed: errors.New("not connected yet")}
	ttl := sequenceTTL
	for _, l := range opt.Ladders {
		ttl = max(ttl, 2*time.Duration(l.Span())*time.Millisecond)
	}
	s.sequenceTTL = number(ttl.Milliseconds())
	if err := s.connect(); err != nil {
		return nil, err
	}
	s.keepers.init(s)
	return s, nil
}

// Close closes all connections. Callers that wait in Keep get an unknown outcome.
func (s *Store) Close() error {
	s.keepers.stop()
	err := s.client.Close() // this also ends commands that wait on a connection
	s.keepers.done.Wait()
	return err
}

// connect makes the client for the URL.
func (s *Store) connect() (err error) {
	if s.where, err = redisurl.Parse(s.opt.URL); err != nil {
		return err
	}
	s.cluster = s.where.Kind == redisurl.Cluster
	s.encryption.secure = s.where.TLS
	if !s.where.Unix {
		s.encryption.servers = s.where.Addresses
	}
	s.client = newClient(s.driverOptions(), s.opt.Password)
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		c.OnNewNode(func(node *redis.Client) {
			s.watch(node)
			node.AddHook(resends{})
		})
	case *redis.Client:
		s.watch(c)
	}
	return nil
}

// driverOptions returns the driver's options. Its retries are off: a count that the driver sent
// twice would be counted twice. A cluster's client sends again in spite of that, see [resends].
func (s *Store) driverOptions() *redis.UniversalOptions {
	o := &redis.UniversalOptions{
		Addrs: s.where.Addresses, IsClusterMode: s.cluster, MasterName: s.where.Master,
		DB: s.where.Database, Username: s.where.Username, Password: s.where.Password,
		SentinelUsername: s.where.SentinelUsername, SentinelPassword: s.where.SentinelPassword,
		MaxRetries: -1, MaxRedirects: 3, Protocol: 2, ContextTimeoutEnabled: true,
		DisableIdentity: true,
		DialTimeout:     s.opt.Timeout, ReadTimeout: s.opt.Timeout, WriteTimeout: s.opt.Timeout,
		PoolTimeout:              s.opt.Timeout,
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.where.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if s.opt.TLS != nil {
			o.TLSConfig = s.opt.TLS.Clone()
		}
	}
	if s.where.Unix {
		dialer := &net.Dialer{Timeout: s.opt.Timeout}
		o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", addr)
		}
	}
	return o
}

// newClient is redis.NewUniversalClient with a function for the password, for which the shared
// options have no field.
func newClient(o *redis.UniversalOptions, password func() (string, error)) redis.UniversalClient {
	if password == nil {
		return redis.NewUniversalClient(o)
	}
	credentials := func(context.Context) (string, string, error) {
		text, err := password()
		return o.Username, text, err
	}
	switch {
	case o.MasterName != "":
		f := o.Failover()
		f.CredentialsProviderContext = credentials
		return redis.NewFailoverClient(f)
	case o.IsClusterMode:
		c := o.Cluster()
		c.CredentialsProviderContext = credentials
		return redis.NewClusterClient(c)
	}
	single := o.Simple()
	single.CredentialsProviderContext = credentials
	return redis.NewClient(single)
}
