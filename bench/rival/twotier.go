package rival

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// twotiers returns twotier as a library and as a server, in memory, over Redis, in pure-Redis mode,
// and as several nodes, which place keys by their names or by their hash tags.
func twotiers() []Rival {
	all := []Rival{
		{Name: "twotier-lib-memory", open: libMemory},
		{Name: "twotier-lib", open: libTwoTier},
		{Name: "twotier-lib-redis-mode", open: libDirect},
		Twotier("twotier-memory", 1, Memory),
		Twotier("twotier", 1, TwoTier),
		Twotier("twotier-redis-mode", 1, PureRedis),
	}
	for nodes := 2; nodes <= mostNodes; nodes++ {
		cluster := Twotier(fmt.Sprintf("twotier-%d", nodes), nodes, TwoTier)
		cluster.Named = nodes != 3
		all = append(all, cluster)
	}
	for nodes := 1; nodes <= mostNodes; nodes++ {
		all = append(all, tagged(fmt.Sprintf("twotier-tagged-%d", nodes), nodes))
	}
	return all
}

// mostNodes is the size of the largest cluster.
const mostNodes = 5

// Mode is the place where a twotier server keeps its counts.
type Mode int

// Memory is without Redis, TwoTier in memory and Redis, and PureRedis in Redis alone.
const (
	Memory Mode = iota
	TwoTier
	PureRedis
)

// memory is the limit for a server's counts.
const memory = "6GiB"

// Twotier is a cluster of so many twotier servers, with further flags of `twotier serve`.
func Twotier(name string, nodes int, mode Mode, flags ...string) Rival {
	return Rival{Name: name, open: func(ctx context.Context, e Env, s *Stand) error {
		all := append([]string{"--max-memory", memory}, flags...)
		if e.Flush > 0 {
			all = append(all, "--flush-interval", e.Flush.String())
		}
		if mode != Memory {
			if err := s.startRedis(); err != nil {
				return err
			}
			all = append(all, "--redis", "redis://"+s.Redis.Addr)
		}
		if mode == PureRedis {
			all = append(all, "--mode", "redis")
		}
		if err := s.startNodes(ctx, e, nodes, all); err != nil {
			return err
		}
		s.overHTTP(name)
		return nil
	}}
}

// tagged is a cluster over Redis whose keys are placed by their hash tags.
func tagged(name string, nodes int) Rival {
	return Rival{Name: name, Named: true, open: func(ctx context.Context, e Env, s *Stand) error {
		dir, err := os.MkdirTemp("", "bench-config")
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.OnClose(func() error { return os.RemoveAll(dir) })
		file := filepath.Join(dir, "twotier.yaml")
		const config = "namespaces: {default: {hash-tags: true}}\n"
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return Twotier(name, nodes, TwoTier, "--config", file).open(ctx, e, s)
	}}
}

// startNodes starts servers, each of which joins the first one, and waits until all know each
// other.
func (s *Stand) startNodes(ctx context.Context, e Env, nodes int, flags []string) error {
	for i := range nodes {
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--node",
			"n" + strconv.Itoa(i+1)}, flags...)
		if nodes > 1 {
			args = append(args, "--gossip", "127.0.0.1:0")
		}
		if i > 0 {
			args = append(args, "--join", s.Servers[0].Gossip)
		}
		server, err := proc.StartServer(e.Twotier, args...)
		if err != nil {
			return err
		}
		s.Servers = append(s.Servers, server)
		s.OnClose(server.Stop)
	}
	for _, server := range s.Servers {
		if err := server.Await(ctx, "twotier_members",
			func(v float64) bool { return int(v) == nodes }); err != nil {
			return fmt.Errorf("cluster of %d: %w", nodes, err)
		}
	}
	return nil
}

func libMemory(ctx context.Context, e Env, s *Stand) error {
	return s.openLibrary(ctx, e, "twotier library, in memory", nil)
}

func libTwoTier(ctx context.Context, e Env, s *Stand) error {
	if err := s.startRedis(); err != nil {
		return err
	}
	store, err := s.OpenStore(ctx)
	if err != nil {
		return err
	}
	return s.openLibrary(ctx, e, "twotier library", store)
}

func (s *Stand) openLibrary(ctx context.Context, e Env, name string, store syncer.Store) error {
	c, err := s.OpenCounter(ctx, syncer.Options{Store: store, MaxMemory: 6 << 30,
		FlushInterval: e.Flush})
	if err != nil {
		return err
	}
	s.Limiter, s.heap, s.drain = limiter.NewLibrary(name, c), true, c.Flush
	return nil
}

func libDirect(ctx context.Context, _ Env, s *Stand) error {
	if err := s.startRedis(); err != nil {
		return err
	}
	d, err := s.OpenDirect(ctx)
	if err != nil {
		return err
	}
	s.Limiter = limiter.NewLibrary("twotier library, Redis mode", d)
	return nil
}

// OpenCounter opens a counter, which the stand closes.
func (s *Stand) OpenCounter(ctx context.Context, o syncer.Options) (*syncer.Counter, error) {
	c, err := syncer.New(o)
	if err != nil {
		return nil, err
	}
	if err := c.Open(ctx); err != nil {
		return nil, err
	}
	s.onCloseWithin(c.Close)
	return c, nil
}

// onCloseWithin is OnClose for a stop that flushes, which gets a bounded time.
func (s *Stand) onCloseWithin(stop func(context.Context) error) {
	s.OnClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return stop(ctx)
	})
}

// OpenStore opens a store over the stand's Redis with the default ladder and the hash seed kept
// there, if any; the stand closes it.
func (s *Stand) OpenStore(ctx context.Context) (*redisstore.Store, error) {
	ladder := leaparray.Default()
	store, err := redisstore.New(redisstore.Options{
		URL: "redis://" + s.Redis.Addr, AnySeed: true,
		Placement: twotier.Placement{Partitions: twotier.DefaultPartitions},
		Ladders:   map[string]*leaparray.Ladder{twotier.DefaultNamespace: ladder},
	})
	if err != nil {
		return nil, err
	}
	s.OnClose(store.Close)
	return store, store.Probe(ctx)
}

// OpenDirect opens a counter that decides and reads in the stand's Redis; the stand closes it.
func (s *Stand) OpenDirect(ctx context.Context) (*redisstore.Direct, error) {
	store, err := s.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	d, err := redisstore.NewDirect(redisstore.DirectOptions{
		Store: store, Now: func() int64 { return time.Now().UnixMilli() }, Writer: "bench",
	})
	if err != nil {
		return nil, err
	}
	if err := d.Open(ctx); err != nil {
		return nil, err
	}
	s.onCloseWithin(d.Close)
	return d, nil
}
