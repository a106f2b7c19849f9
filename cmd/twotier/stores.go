package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/redisurl"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rulebook"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// stores is the store of a server: Redis, or none. It implements node.Store.
type stores struct {
	place   twotier.Placement
	ladders lint.Ladders
	store   syncer.Store       // nil without Redis
	redis   *redisstore.Store  // nil without Redis
	direct  *redisstore.Direct // nil without Redis
	rules   rulebook.Store
}

const (
	// probeTimeout bounds the first contact with Redis.
	probeTimeout = 3 * time.Second
	// seedPause is the time between attempts of a node that must learn the seed from Redis.
	seedPause = 500 * time.Millisecond
)

// openStores makes the configured store. An unsuitable Redis is an error. A Redis that does not
// answer is only a warning, because the node can count in memory until it comes back; see connect
// for the exceptions.
func openStores(ctx context.Context, cfg config.Config, clock *storeclock.Clock,
	log *slog.Logger) (st stores, err error) {
	if st.ladders, err = lint.LaddersOf(&cfg); err != nil {
		return st, err
	}
	st.place = placement(cfg)
	if cfg.Redis == "" {
		st.rules = new(rulebook.Memory)
		log.Warn("no --redis: counts are kept in this process alone, and nothing outlives it")
		return st, nil
	}
	if st.redis, err = newStore(cfg, st.ladders, log); err != nil {
		return st, err
	}
	st.store, st.rules = st.redis, st.redis.Rules()
	if err := st.connect(ctx, cfg.Store, log); err != nil {
		return st, errors.Join(fmt.Errorf("redis at %s: %w", redisurl.Mask(cfg.Redis), err),
			st.redis.Close())
	}
	st.place = st.redis.Placement()
	st.direct, err = redisstore.NewDirect(redisstore.DirectOptions{
		Store: st.redis, Now: clock.Now, Writer: rand.Text()[:12], Timeout: cfg.RequestTimeout,
		Ack: ackOf(cfg.Store), Memory: int(heldMemory(cfg.Store)),
	})
	return st, err
}

// newStore makes the store in Redis. It does not connect.
func newStore(cfg config.Config, ladders lint.Ladders,
	log *slog.Logger) (*redisstore.Store, error) {
	secure, err := certs.ReadClient("--redis-tls-", cfg.RedisTLSCA, cfg.RedisTLSCert,
		cfg.RedisTLSKey)
	if err != nil {
		return nil, err
	}
	exact := map[string]int{} // different values of a key
	for name, ns := range cfg.Namespaces {
		exact[name] = ns.ExactValues
	}
	redis.SetLogger(driverLog{log})
	store, err := redisstore.New(redisstore.Options{
		URL: cfg.Redis, Prefix: cfg.RedisPrefix,
		Password: redisPassword(cfg.Store), TLS: secure,
		Expiry: redisstore.Expiry(cfg.RedisExpiry), Timeout: cfg.RedisTimeout,
		Placement: placement(cfg), AnySeed: cfg.HashSeed == nil, Ladders: ladders,
		MostValues: exact, KeepTimeout: cfg.RequestTimeout,
		KeepReplicas: cfg.AckReplicas, Logger: log,
	})
	if err != nil { // New does not connect, so the URL is wrong
		return nil, &cli.UsageError{Err: fmt.Errorf("--redis: %w", err)}
	}
	return store, nil
}

// redisPassword returns a function that reads the password of Redis from its file, or nil if no
// file is configured.
func redisPassword(cfg config.Store) func() (string, error) {
	if cfg.RedisPasswordFile == "" {
		return nil
	}
	return func() (string, error) {
		text, err := os.ReadFile(cfg.RedisPasswordFile)
		if err != nil {
			return "", fmt.Errorf("--redis-password-file: %w", err)
		}
		return strings.TrimRight(string(text), "\r\n"), nil
	}
}

// placement returns the configured placement of keys. The seed is random unless it is configured,
// because anyone who knows it can choose keys that fall into one partition.
func placement(cfg config.Config) twotier.Placement {
	place := twotier.Placement{Partitions: cfg.Partitions,
		HashTags: cfg.Having(func(ns *config.Namespace) bool { return ns.HashTags })}
	if cfg.HashSeed != nil {
		place.Seed = *cfg.HashSeed
		return place
	}
	var b [8]byte
	rand.Read(b[:]) // never fails
	place.Seed = binary.NativeEndian.Uint64(b[:])
	return place
}

// connect makes the first contact with Redis. If Redis does not answer, a node that knows the seed
// carries on, except in pure-Redis mode. A node without the seed can't find a key in Redis or its
// owner, so it waits.
func (st stores) connect(ctx context.Context, cfg config.Store, log *slog.Logger) error {
	for warned := false; ; {
		err := st.checkRedis(ctx, cfg)
		where := []any{"redis", redisurl.Mask(cfg.Redis), "error", err}
		switch {
		case err == nil:
			return nil
		case isPermanent(err), cfg.Mode == string(cluster.Redis):
			return err
		}
		if cfg.HashSeed != nil {
			log.Warn("Redis does not answer: counting in memory until it does", where...)
			return nil
		}
		if !warned {
			log.Warn("Redis does not answer: waiting for it, it has the hash seed; with "+
				"--hash-seed a node starts without", where...)
			warned = true
		}
		if !retry.Pause(ctx, seedPause) {
			return err
		}
	}
}

// checkRedis checks once that Redis answers and supports the configuration.
func (st stores) checkRedis(ctx context.Context, cfg config.Store) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := st.redis.Probe(ctx); err != nil {
		return err
	}
	if ack := ackOf(cfg); ack > twotier.AckStore {
		return st.redis.Keeps(ctx, ack)
	}
	return nil
}

// isPermanent reports whether an error will persist until somebody changes something.
func isPermanent(err error) bool {
	_, invalid := errors.AsType[*twotier.InvalidError](err)
	return invalid || errors.Is(err, redisstore.ErrMismatch) ||
		errors.Is(err, redisstore.ErrRejected)
}

// driverLog logs the messages of the Redis driver at debug level: they are too many for a log of
// state changes.
type driverLog struct{ log *slog.Logger }

func (d driverLog) Printf(ctx context.Context, format string, v ...any) {
	d.log.DebugContext(ctx, "redis driver: "+fmt.Sprintf(format, v...))
}

func (st stores) open(ctx context.Context) error {
	if st.direct == nil {
		return nil
	}
	st.redis.WatchPolicy()
	return st.direct.Open(ctx)
}

func (st stores) close(ctx context.Context) error {
	if st.redis == nil {
		return nil
	}
	return errors.Join(st.direct.Close(ctx), st.redis.Close())
}

// Clock implements node.Store. Without Redis it follows the machine's wall clock, so that
// corrections of that clock are not lost.
func (st stores) ClockAhead(ctx context.Context,
	local func() time.Time) (ahead time.Duration, err error) {
	if st.redis == nil {
		return time.Since(local().Round(0)).Round(time.Millisecond), nil
	}
	return st.redis.ClockAhead(ctx, local)
}

// Health implements node.Store.
func (st stores) Health() cluster.StoreHealth {
	if st.redis == nil {
		return cluster.StoreHealth{Kind: "embedded", Up: true}
	}
	h := st.redis.Health()
	view := cluster.StoreHealth{
		Kind: h.Kind, Address: h.Address, Up: h.Err == nil, RTTMicros: h.RTT.Microseconds(),
		RoundTrips: h.RoundTrips,
		Durations:  cluster.Durations(h.Durations),
		Fatal:      errors.Is(h.Err, redisstore.ErrMismatch),
	}
	if h.Err != nil {
		view.Error = h.Err.Error()
	}
	return view
}

// openHolds begins to release the holds that nobody settles in time. Without Redis, their deadlines
// are lost with the counts.
func (s *server) openHolds() {
	var store holds.DeadlineStore
	if s.store.redis != nil {
		store = s.store.redis.Deadlines(holds.DeadlineKept)
	}
	s.holds.Open(s.node, store, holdMemory(s.cfg.Store), s.log)
}
