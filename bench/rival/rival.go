package rival

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier/bench/limiter"
	"twotier/bench/proc"
)

// Rival is one way of limiting that can be started.
type Rival struct {
	// Name is short, for command lines and the keys of results.
	Name string
	// Own says that it decides by its own clock, whatever time an event is given.
	Own bool
	// MaxKeys bounds the keys that a run may use, where each takes very much memory; 0 is no bound.
	MaxKeys int
	start   func(ctx context.Context, e *Env) (*Stand, error)
}

// Stand is a rival that runs. It may be used from several goroutines at once.
type Stand struct {
	limiter.Limiter
	// Servers are the processes that decide; empty if it is done in this process or in Redis.
	Servers []*proc.Server
	// Redis is its own, and RDB a connection to it for questions; nil if it has none.
	Redis *proc.Redis
	RDB   *redis.Client
	// Heap says that it keeps its counts in this process.
	Heap  bool
	close []func() error
}

// Close stops everything, the last started first.
func (s *Stand) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.close) {
		errs = append(errs, c())
	}
	s.close = nil
	return errors.Join(errs...)
}

// Env is what rivals are started with.
type Env struct {
	// Twotier and Nop are programs.
	Twotier, Nop string
	// Flush is twotier's flush interval; 0 is its default.
	Flush time.Duration
}

// Build compiles the programs, from within the bench module's directory or one below it.
func Build(ctx context.Context) (e *Env, remove func() error, err error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, nil, err
	}
	e = &Env{}
	remove = func() error {
		return errors.Join(os.RemoveAll(filepath.Dir(e.Twotier)), os.RemoveAll(filepath.Dir(e.Nop)))
	}
	if e.Twotier, err = proc.Build(ctx, filepath.Dir(root), "./cmd/twotier"); err != nil {
		return nil, nil, err
	}
	if e.Nop, err = proc.Build(ctx, root, "./cmd/nop"); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(filepath.Dir(e.Twotier)))
	}
	return e, remove, nil
}

// Main is proc.Main for a command that needs the programs: it compiles them first, and removes them in the end.
func Main(fn func(ctx context.Context, e *Env) error) {
	proc.Main(func(ctx context.Context) (err error) {
		e, remove, err := Build(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		return fn(ctx, e)
	})
}

// moduleRoot is the nearest directory above that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("module root: %w", err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("module root: not within the bench module")
}

// Start starts the rival. Where the server lacks what it is made of, the error wraps limiter.ErrNotAvailable.
func (r Rival) Start(ctx context.Context, e *Env) (*Stand, error) {
	s, err := r.start(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Name, err)
	}
	return s, nil
}

// Select returns those of all whose names are in a list with commas; all for an empty one. A name may end in "*".
func Select(all []Rival, list string) (some []Rival, err error) {
	if list == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		before := len(some)
		for _, r := range all {
			prefix, any := strings.CutSuffix(name, "*")
			if r.Name == name || any && strings.HasPrefix(r.Name, prefix) {
				some = append(some, r)
			}
		}
		if len(some) == before {
			return nil, fmt.Errorf("no rival is called %q; there are %s", name, strings.Join(Names(all), ", "))
		}
	}
	return some, nil
}

// Names are the names of rivals.
func Names(all []Rival) (names []string) {
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}
