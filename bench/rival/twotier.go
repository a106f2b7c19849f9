package rival

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"twotier/bench/limiter"
	"twotier/bench/proc"
	"twotier/internal/embedded"
	"twotier/leaparray"
	"twotier/redisstore"
	"twotier/syncer"
)

// twotiers is twotier as a library and as a server, in memory, over Redis, in pure-Redis mode, and as several nodes.
func twotiers() []Rival {
	return []Rival{
		{Name: "twotier-lib-memory", start: libMemory},
		{Name: "twotier-lib", start: libTwoTier},
		{Name: "twotier-lib-redis-mode", start: libDirect},
		Twotier("twotier-memory", 1, Memory),
		Twotier("twotier", 1, TwoTier),
		Twotier("twotier-redis-mode", 1, PureRedis),
		Twotier("twotier-3", 3, TwoTier),
	}
}

// Mode is what a twotier server keeps its counts in.
type Mode int

// Without Redis, in memory and Redis, and in Redis alone.
const (
	Memory Mode = iota
	TwoTier
	PureRedis
)

// memory is what a server may use for counts.
const memory = "6GiB"

// Twotier is a number of twotier servers that are one cluster, with further flags of `twotier serve`.
func Twotier(name string, nodes int, mode Mode, flags ...string) Rival {
	return Rival{Name: name, start: func(ctx context.Context, e *Env) (*Stand, error) {
		s := &Stand{}
		all := append([]string{"--max-memory", memory}, flags...)
		if e.Flush > 0 {
			all = append(all, "--flush-interval", e.Flush.String())
		}
		if mode != Memory {
			if err := s.startRedis(ctx); err != nil {
				return nil, err
			}
			all = append(all, "--redis", "redis://"+s.Redis.Addr)
		}
		if mode == PureRedis {
			all = append(all, "--mode", "redis")
		}
		if err := s.startNodes(ctx, e, nodes, all); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		var addrs []string
		for _, server := range s.Servers {
			addrs = append(addrs, server.Addr)
		}
		l := limiter.NewHTTP(name, addrs...)
		s.close = append(s.close, l.Close)
		s.Limiter = l
		return s, nil
	}}
}

// startNodes starts servers, each of which joins the first, and waits until all know of all.
func (s *Stand) startNodes(ctx context.Context, e *Env, nodes int, flags []string) error {
	for i := range nodes {
		own := append([]string{"--node", "n" + strconv.Itoa(i+1)}, flags...)
		if nodes > 1 {
			own = append(own, "--gossip", "127.0.0.1:0")
		}
		if i > 0 {
			own = append(own, "--join", s.Servers[0].Gossip)
		}
		server, err := proc.Serve(ctx, e.Twotier, own...)
		if err != nil {
			return err
		}
		s.Servers = append(s.Servers, server)
		s.close = append(s.close, server.Stop)
	}
	for _, server := range s.Servers {
		if err := server.Await(ctx, "twotier_members", func(v float64) bool { return int(v) == nodes }); err != nil {
			return fmt.Errorf("cluster of %d: %w", nodes, err)
		}
	}
	return nil
}

// Drain waits until Redis has acknowledged everything, if there is something that it has not.
func (s *Stand) Drain(ctx context.Context) error {
	for _, server := range s.Servers {
		err := server.Await(ctx, "twotier_pending_buckets", func(v float64) bool { return v == 0 })
		if err != nil && s.Redis != nil {
			return err
		}
	}
	if l, ok := s.Limiter.(*flusher); ok {
		return l.counter.Flush(ctx)
	}
	return nil
}

// flusher is a library whose counts have to get to Redis.
type flusher struct {
	*limiter.Library
	counter *syncer.Counter
}

func libMemory(ctx context.Context, e *Env) (*Stand, error) {
	return openCounter(ctx, &Stand{Heap: true}, "twotier library, in memory",
		syncer.Options{Store: embedded.New(embedded.Options{MaxMemory: 3 << 30}), FlushInterval: e.Flush})
}

func libTwoTier(ctx context.Context, e *Env) (*Stand, error) {
	s := &Stand{Heap: true}
	store, err := s.openStore(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return openCounter(ctx, s, "twotier library", syncer.Options{Store: store, FlushInterval: e.Flush})
}

func openCounter(ctx context.Context, s *Stand, name string, opt syncer.Options) (*Stand, error) {
	opt.MaxMemory = 6 << 30
	c, err := syncer.New(opt)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := c.Open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.close = append(s.close, func() error { return closeWithin(c.Close) })
	s.Limiter = &flusher{limiter.NewLibrary(name, c), c}
	return s, nil
}

// closeWithin gives a Close that flushes a bounded time.
func closeWithin(closer func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return closer(ctx)
}

// openStore starts a Redis and a store over it with the default ladder.
func (s *Stand) openStore(ctx context.Context) (*redisstore.Store, error) {
	if err := s.startRedis(ctx); err != nil {
		return nil, err
	}
	return OpenStore(ctx, s, s.Redis.Addr)
}

// OpenStore opens a store over the Redis at addr, with the hash seed that is kept there, if one is;
// the stand closes it.
func OpenStore(ctx context.Context, s *Stand, addr string) (*redisstore.Store, error) {
	ladder, err := leaparray.NewLadder(leaparray.DefaultLevels()...)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(redisstore.Options{
		URL: "redis://" + addr, Placement: syncer.Placement{Partitions: syncer.DefaultPartitions}, AnySeed: true,
		Ladders: map[string]*leaparray.Ladder{syncer.DefaultNamespace: ladder},
	})
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, store.Close)
	return store, store.Probe(ctx)
}

func libDirect(ctx context.Context, _ *Env) (*Stand, error) {
	s := &Stand{}
	store, err := s.openStore(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	d, err := redisstore.NewDirect(redisstore.DirectOptions{
		Store: store, Now: func() int64 { return time.Now().UnixMilli() }, Writer: "bench",
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := d.Open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.close = append(s.close, func() error { return closeWithin(d.Close) })
	s.Limiter = limiter.NewLibrary("twotier library, Redis mode", d)
	return s, nil
}
