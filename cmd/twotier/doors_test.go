package main

import (
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/testing/must"
)

// TestGRPCConnectionsAge: a client that goes on asking is moved to another connection, and notices
// nothing.
func TestGRPCConnectionsAge(t *testing.T) {
	s := startServe(t, t.Context(), "--gossip", "", "--grpc", "127.0.0.1:0",
		"--grpc-max-connection-age", "200ms", "--grpc-max-connection-age-grace", "1m")
	var ready struct{ GRPC string }
	decode(t, s.out.String(), &ready)
	conn, err := grpc.NewClient(ready.GRPC,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	used := map[string]bool{}
	eventually(t, "another connection", patience, func() bool {
		var at peer.Peer
		if _, err := healthv1.NewHealthClient(conn).Check(t.Context(),
			&healthv1.HealthCheckRequest{}, grpc.Peer(&at)); err != nil {
			t.Fatal(err)
		}
		used[at.LocalAddr.String()] = true
		return len(used) > 1
	})
}

// TestCgroupMemory checks that the heap stays within a cgroup that has less than --max-memory can
// take, and that this is logged, as is a limit that can't be read.
func TestCgroupMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "")
	cfg, err := config.Parse([]string{"--max-memory", "64MiB"}, nil)
	must.Succeed(t, err)
	resident := maxResident(cfg.Store)
	for name, test := range map[string]struct {
		cgroup memlimit.Provider
		most   int64
		warns  bool
	}{
		"none":        {failingCgroup(memlimit.ErrNoCgroup), resident, false},
		"no limit":    {failingCgroup(memlimit.ErrNoLimit), resident, false},
		"unsupported": {failingCgroup(memlimit.ErrCgroupsNotSupported), resident, false},
		"unreadable":  {failingCgroup(errors.New("too many fields")), resident, true},
		"ample":       {memlimit.Limit(uint64(resident)), resident, false},
		"huge":        {memlimit.Limit(math.MaxUint64), resident, false},
		"tight":       {memlimit.Limit(uint64(resident - 10)), resident / 10 * 9, true},
	} {
		var logged strings.Builder
		limitHeap(cfg.Store, test.cgroup, slog.New(slog.NewTextHandler(&logged, nil)))
		want := max(test.most-offHeapMemory(cfg.Store), 32*mebibyte)
		if got := debug.SetMemoryLimit(-1); got > want || got < want-10 ||
			strings.Contains(logged.String(), "cgroup") != test.warns {
			t.Errorf("%s: a heap of %d, want %d; logged %q", name, got, want, logged.String())
		}
	}
}

// failingCgroup returns a provider that fails.
func failingCgroup(err error) memlimit.Provider {
	return func() (uint64, error) { return 0, err }
}

// TestBoundsOfConnections checks the limits that come from memory, RLIMIT_NOFILE and the flags.
func TestBoundsOfConnections(t *testing.T) {
	var files syscall.Rlimit
	must.Succeed(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	small, err := config.Parse([]string{"--max-memory", "64MiB"}, nil)
	must.Succeed(t, err)
	web, err := newLimits(small, nil, nil)
	if err != nil || web.MaxConns < 100 ||
		web.MaxConns > httpapi.Defaults().ConnsFor(web.MaxMemory, false) {
		t.Errorf("%d connections, %v", web.MaxConns, err)
	}
	most := webMemory(config.Store{MaxMemory: 1 << 30})
	if n := httpapi.Defaults().ConnsFor(most, false); n < 8000 {
		t.Errorf("%d connections by default, want 8,000 and more", n)
	}
	huge := small
	huge.MaxMemory = 1 << 50
	web, err = newLimits(huge, nil, nil)
	if err != nil || uint64(web.MaxConns) >= files.Cur {
		t.Errorf("%d connections, %v; RLIMIT_NOFILE is %d", web.MaxConns, err, files.Cur)
	}
	huge.MaxConnections = 1 << 30
	if _, err := newLimits(huge, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "RLIMIT_NOFILE") {
		t.Errorf("more connections than files: %v", err)
	}
	huge.MaxConnections, huge.MaxConnectionsPerAddress = 0, 1<<30
	if _, err := newLimits(huge, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "--max-connections-per-address") {
		t.Errorf("more connections from one address than files: %v", err)
	}
}

// TestConnectionsOfAllListeners checks that the connections of all listeners together fit into the
// file descriptors for them and use all of them.
func TestConnectionsOfAllListeners(t *testing.T) {
	for inner := range 3 {
		for _, files := range []int{0, 2, 75, 192, 768, 49152, 1 << 30} {
			all := func(n int) int { return n + inner*httpapi.InnerConns(n) }
			if n := connsWithin(files, inner); all(n) > files || all(n+1) <= files {
				t.Errorf("%d files, %d listeners besides: %d connections, %d in all", files, inner,
					n, all(n))
			}
		}
	}
}

// TestHeapIsLimited checks that the heap has a limit, and that GOMEMLIMIT in the environment wins.
func TestHeapIsLimited(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	cfg, err := config.Parse([]string{"--max-memory", "64MiB"}, nil)
	must.Succeed(t, err)
	t.Setenv("GOMEMLIMIT", "1GiB")
	limitHeap(cfg.Store, memlimit.FromCgroup, slog.New(slog.DiscardHandler))
	if now := debug.SetMemoryLimit(-1); now != before {
		t.Errorf("a limit that the environment sets has become %d", now)
	}
	t.Setenv("GOMEMLIMIT", "")
	limitHeap(cfg.Store, memlimit.FromCgroup, slog.New(slog.DiscardHandler))
	now := debug.SetMemoryLimit(-1)
	if now >= maxResident(cfg.Store) || now < webMemory(cfg.Store) {
		t.Errorf("the limit is %d; %d may be resident, and requests take %d", now,
			maxResident(cfg.Store), webMemory(cfg.Store))
	}
}
