package main

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
)

// TestCgroupMemory checks that the lowest limit from the process's own group up to the root counts.
func TestCgroupMemory(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none at all": {map[string]string{}, math.MaxInt64},
		"version 1":   {map[string]string{"proc/self/cgroup": "4:memory:/a\n"}, math.MaxInt64},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n"}, math.MaxInt64},
		"its own": {map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "1048576\n"}, 1 << 20},
		"that above": {map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "9000\n", "sys/fs/cgroup/a/memory.max": "5000"}, 5000},
		"in a sandbox": {map[string]string{"proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "4096\n"}, 4096},
	} {
		root := t.TempDir()
		for path, text := range test.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupMemory(root); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestBoundsOfConnections checks the limits that come from memory, RLIMIT_NOFILE and the flags.
func TestBoundsOfConnections(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	small, err := config.Parse([]string{"--max-memory", "64MiB"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var web httpapi.Options
	if err := boundWeb(&web, small); err != nil || web.MaxConns < 100 ||
		web.MaxConns > httpapi.ConnsFor(web.MaxMemory, false) {
		t.Errorf("%d connections, %v", web.MaxConns, err)
	}
	if n := httpapi.ConnsFor(webMemory(config.Config{MaxMemory: 1 << 30}), false); n < 8000 {
		t.Errorf("%d connections by default, want 8,000 and more", n)
	}
	huge := small
	huge.MaxMemory = 1 << 50
	if err := boundWeb(&web, huge); err != nil || uint64(web.MaxConns) >= files.Cur {
		t.Errorf("%d connections, %v; RLIMIT_NOFILE is %d", web.MaxConns, err, files.Cur)
	}
	huge.MaxConnections = 1 << 30
	if err := boundWeb(&web, huge); err == nil || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
		t.Errorf("more connections than files: %v", err)
	}
	huge.MaxConnections, huge.MaxConnectionsPerAddress = 0, 1<<30
	if err := boundWeb(&web, huge); err == nil ||
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
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	limitHeap(cfg, slog.New(slog.DiscardHandler))
	if now := debug.SetMemoryLimit(-1); now != before {
		t.Errorf("a limit that the environment sets has become %d", now)
	}
	t.Setenv("GOMEMLIMIT", "")
	limitHeap(cfg, slog.New(slog.DiscardHandler))
	if now := debug.SetMemoryLimit(-1); now >= residentMost(cfg) || now < webMemory(cfg) {
		t.Errorf("the limit is %d; %d may be resident, and requests take %d", now,
			residentMost(cfg), webMemory(cfg))
	}
}
