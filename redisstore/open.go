package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/connect"
	"twotier.dev/twotier/redisstore/internal/fences"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// Expiry is how buckets leave Redis once no window needs them.
type Expiry string

// The ways to expire buckets.
const (
	// ExpiryKey makes each writer of a key fold its buckets and delete those too old for any
	// window, and gives the key a time to live. It works with every server.
	ExpiryKey Expiry = scripts.ExpireKeys
	// ExpiryField gives every field a time to live as well (HPEXPIRE: Redis 7.4, Valkey 9).
	ExpiryField Expiry = scripts.ExpireFields
	// ExpiryTairhash keeps buckets in TairHash, a module's hash type that gives every field a time
	// to live. It is experimental: the module is not part of the tests.
	ExpiryTairhash Expiry = scripts.ExpireTairhash
)

// DefaultPrefix is the default of Options.Prefix.
const DefaultPrefix = string(layout.DefaultPrefix)

// Options configure a [Store]. The zero value of a field means its default.
type Options struct {
	// URL is the address of Redis: redis://[user:password@]host:port[/db], rediss:// for TLS,
	// unix:///path[?db=n], redis+cluster://host:port,host:port[/db],
	// redis+sentinel://host:port,host:port/master[/db] with
	// ?sentinel-user=NAME&sentinel-password=SECRET if the sentinels themselves ask for one;
	// rediss+cluster and rediss+sentinel for TLS. Required.
	URL string
	// Password returns the password for each new connection, in place of the one in URL, so that it
	// can change while connections are open. Default: none.
	Password func() (string, error)
	// TLS is used with the rediss schemes; nil means the system's root certificates.
	TLS *tls.Config
	// Prefix is the first part of all keys, before a colon: 1 to 32 letters, digits, dots, dashes
	// and underscores. Users of one Redis with different prefixes share no key. Default:
	// DefaultPrefix.
	Prefix string
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
	// MostValues is how many different values of a key pure-Redis mode keeps before a sample stands
	// for them, by namespace. Default: leaparray.DefaultMostValues.
	MostValues map[string]int
	// AnySeed takes the hash seed from Redis, and writes the one in Placement there if Redis has
	// none. Until the first probe succeeds no key can be placed: see [Store.Placement].
	AnySeed bool
	// Logger receives changes of state. Default: none.
	Logger *slog.Logger
}

// ErrMismatch is wrapped by errors about a Redis that can't be used as it is: it lacks a feature
// that was asked for, or holds counts in a different layout. Retrying does not help.
var ErrMismatch = connect.ErrMismatch

// ErrRejected is wrapped by errors about a Redis that refuses this store's credentials: a wrong
// user, password or database, or a certificate that one side does not trust. Retrying does not help
// until that is changed.
var ErrRejected = connect.ErrRejected

// Store is a connection to Redis. Make one with [New].
type Store struct {
	opt         Options
	prefix      layout.Prefix
	conn        *connect.Conn
	fences      *fences.Fences
	scripts     scripts.Set
	sequenceTTL string
	ready       atomic.Bool
	restores    atomic.Bool            // Redis makes keys from payloads
	used        atomic.Bool            // a probe has succeeded
	readyMu     sync.Mutex             // held while Redis is probed at first, or after it lost data
	agreed      bool                   // a probe has succeeded; the placement stays
	since       int64                  // sinceField of the seed; 0 until that is known
	secret      atomic.Pointer[[]byte] // see HoldSecret

	mu      sync.Mutex
	probing *sharedProbe // the probe under way, if there is one

	life context.Context // of background work
	stop context.CancelFunc
	done sync.WaitGroup
}

// New checks the options. It does not connect: call [Store.Probe] to find out whether Redis is
// there and can be used.
func New(opt Options) (*Store, error) {
	opt.Expiry = cmp.Or(opt.Expiry, ExpiryKey)
	if opt.Expiry != ExpiryKey && opt.Expiry != ExpiryField && opt.Expiry != ExpiryTairhash {
		return nil, fmt.Errorf("redisstore: expiry %q, want key, field or tairhash", opt.Expiry)
	}
	opt.Timeout = cmp.Or(opt.Timeout, time.Second)
	opt.KeepTimeout = cmp.Or(opt.KeepTimeout, 2*time.Second)
	opt.KeepReplicas = cmp.Or(opt.KeepReplicas, 1)
	opt.Placement.Partitions = cmp.Or(opt.Placement.Partitions, twotier.DefaultPartitions)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	if opt.Ladders[twotier.DefaultNamespace] == nil {
		return nil, errors.New("redisstore: Options.Ladders has no default")
	}
	opt.Ladders = maps.Clone(opt.Ladders)
	prefix, err := layout.ParsePrefix(cmp.Or(opt.Prefix, DefaultPrefix))
	if err != nil {
		return nil, fmt.Errorf("redisstore: prefix: %w", err)
	}
	conn, err := connect.New(connect.Options{URL: opt.URL, Prefix: prefix,
		Password: opt.Password, TLS: opt.TLS, Timeout: opt.Timeout})
	if err != nil {
		return nil, err
	}
	s := &Store{opt: opt, prefix: prefix, conn: conn, scripts: scripts.New(string(opt.Expiry))}
	ttl := sequenceTTL
	for _, l := range opt.Ladders {
		ttl = max(ttl, 2*time.Duration(l.Span())*time.Millisecond)
	}
	s.sequenceTTL = layout.Number(ttl.Milliseconds())
	s.life, s.stop = context.WithCancel(context.Background())
	s.fences = fences.New(fences.Options{Servers: conn, Replicas: opt.KeepReplicas,
		Timeout: opt.Timeout, KeepTimeout: opt.KeepTimeout, TTL: s.sequenceTTL,
		Go: s.background, RoundTrips: &conn.RoundTrips})
	return s, nil
}

// Close closes all connections. Callers that wait in Keep get an unknown outcome.
func (s *Store) Close() error {
	s.stop()
	err := s.conn.Client.Close() // this also ends commands that wait on a connection
	s.done.Wait()
	return err
}

// background runs fn with a context that is done when the store closes, which waits for fn.
func (s *Store) background(fn func(ctx context.Context)) { s.done.Go(func() { fn(s.life) }) }

// Keep implements syncer.Keeper.
func (s *Store) Keep(ctx context.Context, ack twotier.Ack, marks []syncer.Mark) []error {
	list := make([]fences.Mark, len(marks))
	for i, m := range marks {
		list[i] = fences.Mark{Key: s.prefix.WriterKey(m.Partition, m.Writer), Seq: m.Seq}
	}
	return s.fences.Keep(ctx, ack, list)
}

// Keeps implements syncer.Keeper. In a cluster only the primaries of the given partitions matter.
func (s *Store) Keeps(ctx context.Context, ack twotier.Ack, partitions ...int) error {
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = s.prefix.Key(p, nil, nil)
	}
	return s.fences.Offers(ctx, ack, keys...)
}

// policyInterval is how often servers are asked whether they may evict counts.
const policyInterval = 10 * time.Second

// runPolicy checks the policy periodically until ctx is done.
func (s *Store) runPolicy(ctx context.Context) {
	for retry.Pause(ctx, policyInterval) {
		ask, cancel := context.WithTimeout(ctx, s.opt.Timeout)
		s.conn.CheckPolicy(ask, s.opt.Logger)
		cancel()
	}
}

// WatchPolicy logs periodically which servers may evict counts, until the store is closed. Call it
// once.
func (s *Store) WatchPolicy() { s.background(s.runPolicy) }

// runOne makes Redis carry out a single call, and classifies its error.
func (s *Store) runOne(ctx context.Context, c *scripts.Call) error {
	s.conn.RoundTrips.Add(1)
	scripts.Run(ctx, s.conn.Client, []*scripts.Call{c})
	if err := c.Err(); err != nil {
		return c.Classify(err)
	}
	return nil
}

// runPipeline makes Redis carry out calls in one pipeline, and records the time that takes.
func (s *Store) runPipeline(ctx context.Context, calls []*scripts.Call) {
	s.conn.RoundTrips.Add(1)
	began := time.Now()
	scripts.Run(ctx, s.conn.Client, calls)
	s.conn.Times.Observe(time.Since(began))
}

// longestTTL returns the longest time to live of a key, in milliseconds.
func (s *Store) longestTTL() (ttl int64) {
	for _, l := range s.opt.Ladders {
		ttl = max(ttl, syncer.KeyTTL(l))
	}
	return ttl
}
