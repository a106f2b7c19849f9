package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"twotier.dev/twotier/internal/durations"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// Expiry is how buckets that no window needs any more leave Redis.
type Expiry string

// The ways of expiring buckets.
const (
	// ExpiryKey has the writer delete them with the next write to their key, and gives the key a
	// time to live. It works everywhere.
	ExpiryKey Expiry = "key"
	// ExpiryField gives every field a time to live (HPEXPIRE: Redis 7.4, Valkey 9).
	ExpiryField Expiry = "field"
	// ExpiryTairhash keeps buckets in TairHash, the module's hash with a time to live for every
	// field.
	ExpiryTairhash Expiry = "tairhash"
)

// Options configure a [Store]. The zero value of a field means its default.
type Options struct {
	// URL says where Redis is: redis://[user:password@]host:port[/db], rediss:// for TLS,
	// unix:///path[?db=n], redis+cluster://host:port,host:port,
	// redis+sentinel://host:port,host:port/master[/db] with
	// ?sentinel-user=NAME&sentinel-password=SECRET where the sentinels ask for one themselves;
	// rediss+cluster and rediss+sentinel for TLS. Required.
	URL string
	// Password is asked for the password of each new connection, in place of that in the URL, so
	// that it can be changed while connections are open. Default: none.
	Password func() (string, error)
	// TLS is used with the rediss schemes; nil means the system's roots.
	TLS *tls.Config
	// Expiry defaults to ExpiryKey.
	Expiry Expiry
	// Timeout bounds connecting, and a read or write of one command. Default: 1 s.
	Timeout time.Duration
	// KeepTimeout bounds how long a replica or the disk is waited for, see [Store.Keep]. Default: 2
	// s.
	KeepTimeout time.Duration
	// KeepReplicas is how many replicas have a count, at least, that was kept as AckReplica asks,
	// and are to be connected to each server that takes writes. Default: 1.
	KeepReplicas int
	// Placement and Ladders must be the same for all who share the data; it is compared with what
	// Redis has. Ladders holds those of the namespaces; "default" is for all that are not listed.
	// Required.
	Placement syncer.Placement
	Ladders   map[string]*leaparray.Ladder
	// AnySeed says that the data's seed is taken from Redis; the one in Placement is written there
	// if it has none. Until the first probe has succeeded no key can be placed: see
	// [Store.Placement].
	AnySeed bool
	// Logger is told of changes of state. Default: none.
	Logger *slog.Logger
}

// sentinelSecret is the URL's parameter for the password of the sentinels themselves.
const sentinelSecret = "sentinel-password"

// Store is a connection to Redis. Make one with [New].
type Store struct {
	opt         Options
	client      redis.UniversalClient
	kind        string
	address     string
	user        string // as an ACL names it
	cluster     bool
	scripts     scripts
	aging       bool
	sequenceTTL string
	ttls        map[string][]string
	ready       atomic.Bool
	readyMu     sync.Mutex // held while Redis is probed for the first time, or after it lost data
	encryption  encryption // under readyMu
	agreed      bool       // a probe has succeeded; the placement does not change any more
	keepers     keepers
	policies    policies

	roundTrips atomic.Int64
	rtt        atomic.Int64 // microseconds
	durations  durations.Histogram

	mu     sync.Mutex
	failed error // why it is not up, nil if it is
}

// New checks the options. It connects to nothing: call [Store.Probe] to find out whether Redis is
// there and fits.
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
		opt.Placement.Partitions = syncer.DefaultPartitions
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Ladders[syncer.DefaultNamespace] == nil {
		return nil, errors.New("redisstore: Options.Ladders has no default")
	}
	s := &Store{opt: opt, scripts: newScripts(opt.Expiry), aging: opt.Expiry != ExpiryKey,
		failed: errors.New("not connected yet")}
	ttl := sequenceTTL
	s.ttls = map[string][]string{}
	for name, l := range opt.Ladders {
		ttl = max(ttl, 2*time.Duration(l.Span())*time.Millisecond)
		for level := range l.Len() {
			s.ttls[name] = append(s.ttls[name], number(fieldTTL(l, level)))
		}
	}
	s.sequenceTTL = number(ttl.Milliseconds())
	if err := s.connect(); err != nil {
		return nil, err
	}
	s.keepers.init(s)
	return s, nil
}

// fieldTTL is how long a bucket lives after it was first counted in, in milliseconds, where each
// has a time to live: until it is farther back than its level keeps, if it was counted as early as
// may be, and as much longer for clocks that differ.
func fieldTTL(l *leaparray.Ladder, level int) int64 {
	return (l.Keep(level)+1)*l.Width(level) + 2*leaparray.MaxAhead.Milliseconds()
}

// Aging implements syncer.Ager.
func (s *Store) Aging() bool { return s.aging }

func (s *Store) fieldTTLs(ns []byte) []string {
	if t, ok := s.ttls[string(ns)]; ok {
		return t
	}
	return s.ttls[syncer.DefaultNamespace]
}

// Close closes all connections. Who waits in Keep is told that the outcome is unknown.
func (s *Store) Close() error {
	s.keepers.stop()
	err := s.client.Close() // which also ends what waits on a connection
	s.keepers.done.Wait()
	return err
}

// connect makes the client for the URL. The library's retries are off: it would count twice what it
// sends twice.
func (s *Store) connect() error {
	// A list of hosts is no valid host of a URL: it is taken out before parsing.
	scheme, rest, ok := strings.Cut(s.opt.URL, "://")
	if !ok {
		return fmt.Errorf("redis URL %q: want redis://host:port", mask(s.opt.URL))
	}
	authority, path, _ := strings.Cut(rest, "/")
	userinfo, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		userinfo, hosts = authority[:at+1], authority[at+1:]
	}
	if host, query, ok := strings.Cut(hosts, "?"); ok {
		hosts, path = host, "?"+query
	}
	u, err := url.Parse("redis://" + userinfo + "host/" + path)
	if err != nil || userinfo != "" && u.User == nil || userinfo == "" && hosts != "" &&
		strings.Contains(path, "@") {
		return fmt.Errorf(
			"redis URL %q: malformed; in a password write %%2F for a slash, and so on",
			mask(s.opt.URL))
	}
	o := &redis.UniversalOptions{
		MaxRetries: -1, MaxRedirects: 3, Protocol: 2, ContextTimeoutEnabled: true,
		DisableIdentity: true,
		DialTimeout:     s.opt.Timeout, ReadTimeout: s.opt.Timeout, WriteTimeout: s.opt.Timeout,
		PoolTimeout:              s.opt.Timeout,
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	s.user = "default"
	if u.User != nil {
		s.user = cmp.Or(u.User.Username(), s.user)
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	plain, secure := strings.CutPrefix(scheme, "rediss")
	if s.encryption.secure = secure; secure {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if s.opt.TLS != nil {
			o.TLSConfig = s.opt.TLS.Clone()
		}
	} else {
		plain = strings.TrimPrefix(scheme, "redis")
	}
	segments := strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' })
	if err := s.choose(o, plain, hosts, segments, u); err != nil {
		return fmt.Errorf("redis URL %q: %w", mask(s.opt.URL), err)
	}
	s.client = newClient(o, s.opt.Password)
	if c, ok := s.client.(*redis.ClusterClient); ok {
		c.OnNewNode(func(node *redis.Client) { node.AddHook(detours{}) })
	}
	return nil
}

// newClient is redis.NewUniversalClient, but that a password may be asked for: the options that all
// kinds share have no place for that.
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

// choose fills in what depends on the kind of server.
func (s *Store) choose(o *redis.UniversalOptions, scheme, hosts string, segments []string,
	u *url.URL) (err error) {
	s.address = hosts
	db := u.Query().Get("db")
	switch scheme {
	case "unix":
		s.kind, s.address = "redis", u.Path
		o.Addrs = []string{u.Path}
		dialer := &net.Dialer{Timeout: s.opt.Timeout}
		o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", addr)
		}
	case "":
		s.kind = "redis"
		if len(segments) > 0 {
			db = segments[0]
		}
	case "+cluster":
		s.kind, s.cluster, o.IsClusterMode = "redis-cluster", true, true
		if len(segments) > 0 {
			db = segments[0]
		}
	case "+sentinel":
		s.kind = "redis-sentinel"
		if len(segments) == 0 {
			return errors.New("want redis+sentinel://host:port,host:port/master-name")
		}
		o.MasterName = segments[0]
		o.SentinelUsername, o.SentinelPassword = u.Query().Get("sentinel-user"),
			u.Query().Get(sentinelSecret)
		if len(segments) > 1 {
			db = segments[1]
		}
	default:
		return errors.New("unknown scheme, want redis, rediss, unix, redis+cluster or " +
			"redis+sentinel")
	}
	if scheme != "unix" {
		if o.Addrs, err = addresses(hosts, scheme == "+sentinel"); err != nil {
			return err
		}
		s.encryption.servers = o.Addrs
		if scheme == "" && len(o.Addrs) > 1 {
			// The library would take it for a cluster.
			return errors.New("several hosts, want redis+cluster://host,host or " +
				"redis+sentinel://host,host/master-name")
		}
	}
	if db != "" {
		if o.DB, err = strconv.Atoi(db); err != nil || s.cluster {
			return fmt.Errorf("database %q, want a number (and none with a cluster)", db)
		}
	}
	return nil
}

func addresses(hosts string, sentinel bool) (list []string, err error) {
	for _, h := range strings.Split(hosts, ",") {
		if h == "" {
			return nil, errors.New("a host is missing")
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			port := "6379"
			if sentinel {
				port = "26379"
			}
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		_, port, _ := net.SplitHostPort(h) // it has one
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("port %q, want a number from 1 to 65535", port)
		}
		list = append(list, h)
	}
	return list, nil
}

// mask hides the password of a URL.
func mask(raw string) string {
	if before, secret, ok := strings.Cut(raw, sentinelSecret+"="); ok {
		_, after, more := strings.Cut(secret, "&")
		if raw = before + sentinelSecret + "=***"; more {
			raw += "&" + after
		}
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if scheme += "://"; !ok {
		scheme, rest = "", raw
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return raw
	}
	user, _, _ := strings.Cut(rest[:at], ":")
	return scheme + user + ":***@" + rest[at+1:]
}
