package rival

import (
	"context"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/proc"
)

// All returns the rivals, with twotier in all its forms last.
func All() []Rival {
	all := []Rival{
		Nothing(`{"allowed":true,"errors":[],"added":0,"allowed":1,"refused":0}`),
		{Name: "zset-pipeline", OneByOne: true, open: over(limiter.NewZSetPipe)},
	}
	for _, name := range limiter.ScriptNames() {
		all = append(all, Rival{Name: name, open: inRedis(func(ctx context.Context,
			rdb *redis.Client) (limiter.Limiter, error) {
			return limiter.NewScripted(ctx, name, rdb)
		})})
	}
	return append(append(all,
		Rival{Name: "redis-rate", Own: true, OneByOne: true, open: over(limiter.NewGCRA)},
		Rival{Name: "sentinel", Own: true, MaxKeys: 100_000, open: openSentinel},
		Rival{Name: "gubernator-1", Own: true, open: openGubernator(1)},
		Rival{Name: "gubernator-3", Own: true, open: openGubernator(3)},
	), twotiers()...)
}

// poolSize exceeds the concurrency of any driver.
const poolSize = 128

// inRedis opens a limiter that consists of a Redis and its clients.
func inRedis(create func(context.Context, *redis.Client) (limiter.Limiter, error)) opener {
	return func(ctx context.Context, _ Env, s *Stand) (err error) {
		if err := s.startRedis(); err != nil {
			return err
		}
		rdb := limiter.Connect(s.Redis.Addr, poolSize)
		s.OnClose(rdb.Close)
		s.Limiter, err = create(ctx, rdb)
		return err
	}
}

// over is inRedis for a create that can't fail.
func over[L limiter.Limiter](create func(*redis.Client) L) opener {
	return inRedis(func(_ context.Context, rdb *redis.Client) (limiter.Limiter, error) {
		return create(rdb), nil
	})
}

func openSentinel(_ context.Context, _ Env, s *Stand) error {
	s.Limiter, s.heap = limiter.NewSentinel(), true
	return nil
}

func openGubernator(nodes int) opener {
	return func(ctx context.Context, _ Env, s *Stand) error {
		g, err := limiter.NewGubernator(ctx, nodes)
		if err != nil {
			return err
		}
		s.Limiter, s.heap = g, true
		s.OnClose(g.Close)
		return nil
	}
}

// Nothing is a server that answers every request with the same body: the least possible cost of a
// decision by HTTP.
func Nothing(body string) Rival {
	return Rival{Name: "nothing", Own: true, open: func(_ context.Context, e Env, s *Stand) error {
		server, err := proc.StartServer(e.Bench, "nop", "--body", body)
		if err != nil {
			return err
		}
		s.OnClose(server.Stop)
		s.Servers = []*proc.Server{server}
		s.overHTTP("do-nothing HTTP server")
		return nil
	}}
}

// overHTTP makes the stand's limiter one that calls its servers.
func (s *Stand) overHTTP(name string) {
	var addrs []string
	for _, server := range s.Servers {
		addrs = append(addrs, server.Addr)
	}
	l := limiter.NewHTTP(name, addrs...)
	s.OnClose(l.Close)
	s.Limiter = l
}
