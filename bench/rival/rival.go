package rival

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/proc"
)

// Rival is one way of limiting that can be started.
type Rival struct {
	// Name is short, for command lines and the keys of results.
	Name string
	// Own marks a rival that uses its own clock and ignores the time of an event.
	Own bool
	// OneByOne marks a rival that makes one decision at a time: many in a call save no round trips.
	OneByOne bool
	// MaxKeys bounds the keys of a run if each takes very much memory; 0 is no bound.
	MaxKeys int
	// Named marks a rival that runs only by its name: one more size of a cluster, or another
	// placement of its keys.
	Named bool
	open  opener
}

// An opener starts the servers and clients of a stand's limiter, which the stand closes also if
// this fails.
type opener func(ctx context.Context, e Env, s *Stand) error

// Stand is a running rival. It is safe for concurrent use.
type Stand struct {
	limiter.Limiter
	// Rival is the started rival; zero for a stand without a limiter.
	Rival Rival
	// Servers are the processes that decide; empty if this process or Redis decides.
	Servers []*proc.Server
	// Redis is the stand's Redis, and RDB a connection to it for questions; nil if it has none.
	Redis *proc.Redis
	RDB   *redis.Client
	// heap marks a rival that keeps its counts in this process.
	heap bool
	// drain, if set, flushes the counts in this process to Redis.
	drain func(context.Context) error
	close []func() error
}

// Start starts the rival. If the server lacks a command that the rival needs, the error wraps
// limiter.ErrNotAvailable.
func (r Rival) Start(ctx context.Context, e Env) (*Stand, error) {
	s := &Stand{Rival: r}
	if err := r.open(ctx, e, s); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", r.Name, err), s.Close())
	}
	return s, nil
}

// Redis is a stand without a limiter.
func Redis() (*Stand, error) {
	s := &Stand{}
	return s, s.startRedis()
}

// startRedis starts a Redis for the stand and connects to it.
func (s *Stand) startRedis() error {
	server, err := proc.StartRedis()
	if err != nil {
		return err
	}
	s.Redis, s.RDB = server, limiter.Connect(server.Addr, 2)
	s.OnClose(server.Stop)
	s.OnClose(s.RDB.Close)
	return nil
}

// OnClose makes Close call stop.
func (s *Stand) OnClose(stop func() error) { s.close = append(s.close, stop) }

// Close stops everything, the last started first.
func (s *Stand) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.close) {
		errs = append(errs, c())
	}
	s.close = nil
	return errors.Join(errs...)
}

// Drain waits until Redis has acknowledged everything.
func (s *Stand) Drain(ctx context.Context) error {
	if s.drain != nil {
		return s.drain(ctx)
	}
	if s.Redis == nil {
		return nil
	}
	for _, server := range s.Servers {
		if server.Addr == "" { // not twotier: nothing is pending
			continue
		}
		if err := server.Await(ctx, "twotier_pending_buckets",
			func(v float64) bool { return v == 0 }); err != nil {
			return err
		}
	}
	return nil
}

// Env is the environment of rivals.
type Env struct {
	// Twotier and Bench are the programs, built by Build.
	Twotier, Bench string
	// Flush is twotier's flush interval; 0 is its default.
	Flush time.Duration
}

// Build compiles the programs into a directory, unless they are there and up to date, from within
// the bench module's directory or one below it. TWOTIER_PROGRAM may name another program to
// measure, of an earlier revision.
func Build(ctx context.Context, dir string) (e Env, err error) {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return e, fmt.Errorf("build: %w", err)
	}
	e = Env{Twotier: filepath.Join(dir, "twotier"), Bench: filepath.Join(dir, "bench")}
	bench := filepath.Dir(strings.TrimSpace(string(module)))
	for from, pkg := range map[string]string{filepath.Dir(bench): "./cmd/twotier",
		bench: "./cmd/bench"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-C", from, "-o", dir, pkg)
		if msg, err := cmd.CombinedOutput(); err != nil {
			return e, fmt.Errorf("build %s: %w: %s", pkg, err, msg)
		}
	}
	e.Twotier = cmp.Or(os.Getenv("TWOTIER_PROGRAM"), e.Twotier)
	return e, nil
}

// Select returns the rivals whose names are in a list, or all but the Named ones if the list is
// empty. A name may end in "*".
func Select(all []Rival, names []string) (some []Rival, err error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(all), func(r Rival) bool { return r.Named }), nil
	}
	for _, name := range names {
		before := len(some)
		for _, r := range all {
			if ok, _ := filepath.Match(name, r.Name); ok {
				some = append(some, r)
			}
		}
		if len(some) == before {
			return nil, fmt.Errorf("no rival is called %q; there are %s", name,
				strings.Join(Names(all), ", "))
		}
	}
	return some, nil
}

// Names returns the names of rivals.
func Names(all []Rival) (names []string) {
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}
