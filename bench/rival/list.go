package rival

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"twotier/bench/limiter"
	"twotier/bench/proc"
)

// All are the rivals that this package knows and others, twotier in all its forms last.
func All(others ...Rival) []Rival {
	rivals := []Rival{
		{Name: "nothing", Own: true, start: startNop},
		{Name: "zset-pipeline", start: inRedis(func(_ context.Context, rdb *redis.Client) (limiter.Limiter, error) {
			return limiter.NewZSetPipe(rdb), nil
		})},
		{Name: "zset-lua", start: scripted(limiter.NewZSet)},
		{Name: "hash-lua", start: scripted(func(rdb *redis.Client) *limiter.Scripted {
			return limiter.NewHash(rdb, limiter.LastN)
		})},
		{Name: "hash-lua-whole", start: scripted(func(rdb *redis.Client) *limiter.Scripted {
			return limiter.NewHash(rdb, limiter.WholeOldest)
		})},
		{Name: "hash-field-expiry", start: inRedis(func(ctx context.Context, rdb *redis.Client) (limiter.Limiter, error) {
			l, err := limiter.NewFieldExpiry(ctx, rdb)
			if err != nil {
				return nil, err
			}
			return l, l.Load(ctx)
		})},
		{Name: "stream-lua", start: scripted(limiter.NewStream)},
		{Name: "incr-lua", start: scripted(limiter.NewIncr)},
		{Name: "redis-rate", Own: true, start: inRedis(func(_ context.Context, rdb *redis.Client) (limiter.Limiter, error) {
			return limiter.NewGCRA(rdb), nil
		})},
		{Name: "sentinel", Own: true, MaxKeys: 100_000, start: func(context.Context, *Env) (*Stand, error) {
			return &Stand{Limiter: limiter.NewSentinel(), Heap: true}, nil
		}},
	}
	return append(append(rivals, others...), twotiers()...)
}

// InProcess is a rival that runs in this process: open returns it with what closes it.
func InProcess(name string, open func(ctx context.Context) (limiter.Limiter, func() error, error)) Rival {
	return Rival{Name: name, Own: true, start: func(ctx context.Context, _ *Env) (*Stand, error) {
		l, closer, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return &Stand{Limiter: l, Heap: true, close: []func() error{closer}}, nil
	}}
}

// poolSize is above what any driver asks for at a time.
const poolSize = 128

func inRedis(open func(context.Context, *redis.Client) (limiter.Limiter, error)) func(context.Context, *Env) (*Stand, error) {
	return func(ctx context.Context, _ *Env) (*Stand, error) {
		s := &Stand{}
		if err := s.startRedis(ctx); err != nil {
			return nil, err
		}
		rdb := limiter.Connect(s.Redis.Addr, poolSize)
		s.close = append(s.close, rdb.Close)
		l, err := open(ctx, rdb)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.Limiter = l
		return s, nil
	}
}

func scripted(open func(*redis.Client) *limiter.Scripted) func(context.Context, *Env) (*Stand, error) {
	return inRedis(func(ctx context.Context, rdb *redis.Client) (limiter.Limiter, error) {
		l := open(rdb)
		return l, l.Load(ctx)
	})
}

// startRedis starts a Redis for the stand and connects to it.
func (s *Stand) startRedis(ctx context.Context) error {
	server, err := proc.StartRedis(ctx)
	if err != nil {
		return err
	}
	s.Redis, s.RDB = server, limiter.Connect(server.Addr, 2)
	s.close = append(s.close, server.Stop, s.RDB.Close)
	return nil
}

// startNop starts the server that does nothing: what a decision by HTTP can cost at least.
func startNop(ctx context.Context, e *Env) (*Stand, error) {
	server, err := proc.StartServer(ctx, e.Nop, "-body", `{"allowed":true,"errors":[],"allowed":1}`)
	if err != nil {
		return nil, err
	}
	l := limiter.NewHTTP("do-nothing HTTP server", server.Addr)
	return &Stand{Limiter: l, Servers: []*proc.Server{server}, close: []func() error{server.Stop, l.Close}}, nil
}

// Redis is a stand without a limiter.
func Redis(ctx context.Context) (*Stand, error) {
	s := &Stand{}
	return s, s.startRedis(ctx)
}
