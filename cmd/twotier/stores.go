package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier/internal/config"
	"twotier/internal/embedded"
	"twotier/internal/node"
	"twotier/leaparray"
	"twotier/redisstore"
	"twotier/syncer"
)

// stores is the store of a server: Redis, or the embedded one. It is what the node knows of it.
type stores struct {
	ladders  map[string]*leaparray.Ladder
	store    syncer.Store
	redis    *redisstore.Store  // nil with the embedded store
	direct   *redisstore.Direct // the same
	embedded *embedded.Store    // nil with Redis
}

// probeTimeout bounds the first contact with Redis.
const probeTimeout = 3 * time.Second

// openStores makes the store that the configuration asks for. A Redis that doesn't fit is refused; one that does not
// answer is only warned of, unless nothing works without it: the service can count until it comes back.
func openStores(ctx context.Context, cfg config.Config, shared *embedded.Store, clock *node.Clock, log *slog.Logger) (st stores, err error) {
	st.ladders = map[string]*leaparray.Ladder{}
	for name, ns := range cfg.Namespaces {
		if st.ladders[name], err = leaparray.NewLadder(ns.Ladder...); err != nil {
			return st, fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	if cfg.Redis == "" {
		if st.embedded = shared; shared == nil {
			log.Warn("no --redis: counts are kept in this process alone, and nothing outlives it")
			st.embedded = embedded.New(embedded.Options{MaxMemory: cfg.MaxMemory / 2})
		}
		st.store = st.embedded
		return st, nil
	}
	tlsConfig, err := loadTLS(cfg)
	if err != nil {
		return st, err
	}
	redis.SetLogger(driverLog{log})
	st.redis, err = redisstore.New(redisstore.Options{
		URL: cfg.Redis, TLS: tlsConfig, Expiry: redisstore.Expiry(cfg.RedisExpiry), Timeout: cfg.RedisTimeout,
		Placement: syncer.Placement{Partitions: cfg.Partitions, Seed: cfg.HashSeed}, Ladders: st.ladders, Logger: log,
	})
	if err != nil {
		return st, err
	}
	st.store = st.redis
	probe, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := st.redis.Probe(probe); err != nil {
		if errors.Is(err, redisstore.ErrMismatch) || cfg.Mode == string(node.ModeRedis) {
			return st, errors.Join(fmt.Errorf("redis at %s: %w", config.MaskURL(cfg.Redis), err), st.redis.Close())
		}
		log.Warn("Redis does not answer: counting in memory until it does", "redis", config.MaskURL(cfg.Redis), "error", err)
	}
	st.direct, err = redisstore.NewDirect(redisstore.DirectOptions{
		Store: st.redis, Now: clock.Now, Writer: rand.Text()[:12], Timeout: cfg.RequestTimeout,
	})
	return st, err
}

// driverLog takes what the Redis driver says of its own accord, which is too much for a log of changes of state.
type driverLog struct{ log *slog.Logger }

func (d driverLog) Printf(ctx context.Context, format string, v ...any) {
	d.log.DebugContext(ctx, "redis driver: "+fmt.Sprintf(format, v...))
}

func loadTLS(cfg config.Config) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.RedisTLSCA != "" {
		pem, err := os.ReadFile(cfg.RedisTLSCA)
		if err != nil {
			return nil, fmt.Errorf("--redis-tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--redis-tls-ca: %s holds no certificate", cfg.RedisTLSCA)
		}
	}
	if cfg.RedisTLSCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.RedisTLSCert, cfg.RedisTLSKey)
		if err != nil {
			return nil, fmt.Errorf("--redis-tls-cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (st stores) open(ctx context.Context) error {
	if st.direct == nil {
		return nil
	}
	return st.direct.Open(ctx)
}

func (st stores) close(ctx context.Context) error {
	if st.redis == nil {
		return nil
	}
	return errors.Join(st.direct.Close(ctx), st.redis.Close())
}

// Clock implements node.Store. Without Redis the machine's own clock is followed, so that its corrections are not lost.
func (st stores) Clock(ctx context.Context, local func() time.Time) (ahead time.Duration, err error) {
	if st.redis == nil {
		return time.Since(local().Round(0)).Round(time.Millisecond), nil
	}
	return st.redis.Clock(ctx, local)
}

// Health implements node.Store.
func (st stores) Health() node.StoreHealth {
	if st.redis == nil {
		return node.StoreHealth{Kind: "embedded", Up: true}
	}
	h := st.redis.Health()
	view := node.StoreHealth{
		Kind: h.Kind, Address: h.Address, Up: h.Err == nil, RTTMicros: h.RTT.Microseconds(), RoundTrips: h.RoundTrips,
		Fatal: errors.Is(h.Err, redisstore.ErrMismatch),
	}
	if h.Err != nil {
		view.Error = h.Err.Error()
	}
	return view
}
