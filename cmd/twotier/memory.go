package main

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/syncer"
)

const mebibyte = 1 << 20

// residentMost is what the process may have resident, whatever is sent to it: 1.3 times
// --max-memory and 64 MiB.
func residentMost(cfg config.Config) int64 {
	return cfg.MaxMemory + cfg.MaxMemory/10*3 + 64*mebibyte
}

// webMemory is what of that is for requests: counters may exceed --max-memory by a quarter, and the
// program itself takes some.
func webMemory(cfg config.Config) int64 { return cfg.MaxMemory/20 + 40*mebibyte }

// counterMemory is what of --max-memory is for the counters; without Redis the other half is the
// store's.
func counterMemory(cfg config.Config) int64 {
	if cfg.Redis == "" {
		return cfg.MaxMemory / 2
	}
	return cfg.MaxMemory
}

// boundWeb sets what bounds the connections of a server.
func boundWeb(web *httpapi.Options, cfg config.Config) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("RLIMIT_NOFILE: %w", err)
	}
	web.MaxMemory = webMemory(cfg)
	// The rest of the files is for Redis, other nodes, and what has to be opened while everything
	// is in use.
	most := connsWithin(int(min(files.Cur, math.MaxInt32)/4*3), innerDoors(cfg))
	web.MaxConns, web.MaxConnsPerAddress = cfg.MaxConnections, cfg.MaxConnectionsPerAddress
	flag, asked := "max-connections", web.MaxConns
	if asked == 0 {
		flag, asked = "max-connections-per-address", web.MaxConnsPerAddress
		web.MaxConns = max(1, min(most, httpapi.ConnsFor(web.MaxMemory, web.TLS != nil)), asked)
	}
	if asked > most {
		return fmt.Errorf("--%s: %d are more than the %d that RLIMIT_NOFILE, which is %d, is "+
			"enough for; raise it (ulimit -n, LimitNOFILE=)",
			flag, asked, most, files.Cur)
	}
	return nil
}

// innerDoors is how many listeners have connections of their own besides --listen.
func innerDoors(cfg config.Config) (n int) {
	for _, address := range []string{cfg.Admin, cfg.Peer} {
		if address != "" {
			n++
		}
	}
	return n
}

// connsWithin returns how many connections --listen may have, so that with those of the other
// listeners there are no more than files.
func connsWithin(files, inner int) int {
	return sort.Search(files, func(n int) bool { return n+1+inner*httpapi.InnerConns(n+1) > files })
}

// limitHeap has the garbage collector keep the process within what it may have resident, and within
// the memory that its cgroup may have. A limit that the environment sets is left alone.
func limitHeap(cfg config.Config, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	most := residentMost(cfg)
	if group := cgroupMemory("/"); group < most {
		log.Warn("the cgroup may have less memory than --max-memory can take: lower the one or "+
			"raise the other",
			"cgroup", group, "max_memory", cfg.MaxMemory, "resident", most)
		most = group / 10 * 9
	}
	debug.SetMemoryLimit(max(most-outsideHeap(cfg), 32*mebibyte))
}

// outsideHeap is what the process takes that the garbage collector knows nothing of: the program,
// and the counters.
func outsideHeap(cfg config.Config) int64 {
	const program = 20 * mebibyte
	if !syncer.OffHeap() {
		return program
	}
	return program + counterMemory(cfg)/4*5 // which keys that are known may take
}

// cgroupMemory returns the least memory that this process's cgroup (version 2) or one above it may
// have, in bytes; without a limit that is very much. Files are looked for below root.
func cgroupMemory(root string) int64 {
	least := int64(math.MaxInt64)
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ok {
			limit, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", path, "memory.max"))
			if err == nil {
				text := strings.TrimSpace(string(limit))
				if n, err := strconv.ParseInt(text, 10, 64); err == nil {
					least = min(least, n)
				}
			}
			ok = path != "/" && path != "."
			path = filepath.Dir(path)
		}
	}
	return least
}
