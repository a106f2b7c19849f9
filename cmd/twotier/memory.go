package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"sort"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/syncer"
)

const mebibyte = 1 << 20

// maxResident returns the most memory, in bytes, that the process may have resident, whatever
// clients send: 1.3 times --max-memory plus 64 MiB.
func maxResident(cfg config.Store) int64 {
	return cfg.MaxMemory + cfg.MaxMemory/10*3 + 64*mebibyte
}

// webMemory returns the part of maxResident that is for requests. The rest is for the counters,
// which may exceed --max-memory by a quarter, and for the program itself.
func webMemory(cfg config.Store) int64 { return cfg.MaxMemory/20 + 40*mebibyte }

// doorCount returns the number of servers that share webMemory, and the file descriptors for
// connections, in equal parts: the HTTP API and the servers of other protocols.
func doorCount(cfg config.Server) int64 {
	n := int64(1)
	for _, address := range []string{cfg.Resp, cfg.GRPC} {
		if address != "" {
			n++
		}
	}
	return n
}

// holdMemory returns the part of --max-memory that is for holds to release at their ends.
func holdMemory(cfg config.Store) int64 { return cfg.MaxMemory / 32 }

// heldMemory returns the part of --max-memory that is for what operations on Redis itself hold of
// their keys. Without Redis it leaves room for requests.
func heldMemory(cfg config.Store) int64 { return cfg.MaxMemory / 16 }

// counterMemory returns the part of --max-memory that is for the counters: all but holdMemory and
// heldMemory.
func counterMemory(cfg config.Store) int64 {
	return cfg.MaxMemory - holdMemory(cfg) - heldMemory(cfg)
}

// limitWeb sets the limits on the memory and the connections of the HTTP server.
func limitWeb(web *httpapi.Options, cfg config.Config) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("RLIMIT_NOFILE: %w", err)
	}
	web.MaxMemory = webMemory(cfg.Store) / doorCount(cfg.Server)
	// Connections get three quarters of the file descriptors. The rest is for Redis, other nodes,
	// and files that must be opened when all connections are in use.
	share := int(min(files.Cur, math.MaxInt32)/4*3) / int(doorCount(cfg.Server))
	most := connsWithin(share, innerListenerCount(cfg))
	web.MaxConns, web.MaxConnsPerAddress = cfg.MaxConnections, cfg.MaxConnectionsPerAddress
	flag, asked := "max-connections", web.MaxConns
	if asked == 0 {
		flag, asked = "max-connections-per-address", web.MaxConnsPerAddress
		fit := httpapi.Defaults().ConnsFor(web.MaxMemory, web.TLS != nil)
		web.MaxConns = max(1, min(most, fit), asked)
	}
	if asked > most {
		return fmt.Errorf("--%s: %d are more than the %d that RLIMIT_NOFILE, which is %d, is "+
			"enough for; raise it (ulimit -n, LimitNOFILE=)",
			flag, asked, most, files.Cur)
	}
	return nil
}

// innerListenerCount returns the number of listeners in addition to --listen.
func innerListenerCount(cfg config.Config) (n int) {
	for _, address := range []string{cfg.Admin, cfg.Peer} {
		if address != "" {
			n++
		}
	}
	return n
}

// connsWithin returns the largest number of connections for --listen such that all listeners
// together have at most files connections. inner is the number of other listeners.
func connsWithin(files, inner int) int {
	return sort.Search(files, func(n int) bool { return n+1+inner*httpapi.InnerConns(n+1) > files })
}

// limitHeap sets the garbage collector's memory limit so that the process stays within maxResident
// and within its cgroup's limit. A GOMEMLIMIT in the environment takes precedence.
func limitHeap(cfg config.Store, cgroup memlimit.Provider, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	most := maxResident(cfg)
	group, err := cgroup()
	switch {
	case errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrNoLimit),
		errors.Is(err, memlimit.ErrCgroupsNotSupported):
	case err != nil:
		log.Warn("can't read the memory limit of the cgroup: set GOMEMLIMIT if it has one",
			"error", err)
	case group < uint64(most):
		log.Warn("the cgroup may have less memory than --max-memory can take: lower the one or "+
			"raise the other",
			"cgroup", group, "max_memory", cfg.MaxMemory, "resident", most)
		most = int64(group / 10 * 9)
	}
	debug.SetMemoryLimit(max(most-offHeapMemory(cfg), 32*mebibyte))
}

// offHeapMemory returns the memory of the process that the garbage collector does not see: the
// program and, if they are off the heap, the counters.
func offHeapMemory(cfg config.Store) int64 {
	const program = 28 * mebibyte // 22 at rest
	if !syncer.OffHeap() {
		return program
	}
	return program + counterMemory(cfg)/4*5 // keys in memory may exceed the limit by a quarter
}
