package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"twotier/bench/proc"
	"twotier/bench/rival"
)

// Usage is what a rival and its driver have used up to now, or between two moments.
type Usage struct {
	// Driver, Service and Redis are processor seconds: of this process, which also draws the decisions and runs what is a
	// library; of the rival's own server processes; of its Redis.
	Driver  float64 `json:"driver_cpu_seconds"`
	Service float64 `json:"service_cpu_seconds"`
	Work    Work    `json:"redis"`
	// Mallocs are the allocations in this process.
	Mallocs uint64 `json:"mallocs"`
}

// Of asks for the usage of a stand.
func Of(ctx context.Context, s *rival.Stand) (u Usage, err error) {
	for _, server := range s.Servers {
		cpu, err := server.CPU()
		if err != nil {
			return u, err
		}
		u.Service += cpu.Seconds()
	}
	if s.RDB != nil {
		if u.Work, err = RedisWork(ctx, s.RDB); err != nil {
			return u, err
		}
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, fmt.Errorf("getrusage: %w", err)
	}
	u.Driver = time.Duration(self.Utime.Nano() + self.Stime.Nano()).Seconds()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Mallocs = m.Mallocs
	return u, nil
}

// Since is what was used after an earlier answer.
func (u Usage) Since(o Usage) Usage {
	return Usage{u.Driver - o.Driver, u.Service - o.Service, u.Work.Since(o.Work), u.Mallocs - o.Mallocs}
}

// Memory is what counts take up.
type Memory struct {
	// Keys are how many there are for the limiter's user. The others are bytes.
	Keys int64 `json:"keys"`
	// Service is the resident memory of the servers, of this process for a library.
	Service int64 `json:"service_bytes"`
	// Counted is what twotier's servers account for their counts.
	Counted int64 `json:"counted_bytes"`
	Redis   int64 `json:"redis_bytes"`
}

// MemoryOf asks for the memory of a stand.
func MemoryOf(ctx context.Context, s *rival.Stand) (m Memory, err error) {
	if s.Heap {
		m.Service, err = Resident()
	}
	for _, server := range s.Servers {
		rss, err1 := server.RSS()
		err = errors.Join(err, err1)
		m.Service += rss
		if counted, err := server.Metric(ctx, "twotier_memory_bytes"); err == nil {
			m.Counted += int64(counted)
		}
	}
	if s.RDB != nil {
		used, err1 := UsedMemory(ctx, s.RDB)
		m.Redis = used
		err = errors.Join(err, err1)
	}
	return m, err
}

// Since is what was added after an earlier answer.
func (m Memory) Since(o Memory) Memory {
	return Memory{m.Keys - o.Keys, m.Service - o.Service, m.Counted - o.Counted, m.Redis - o.Redis}
}

// Resident is the memory in bytes that this process holds in RAM, after what is garbage has been given back: the heap, and what
// is mapped besides.
func Resident() (int64, error) {
	// What a finalizer or a pool still holds goes with the second.
	runtime.GC()
	debug.FreeOSMemory()
	return proc.RSS(os.Getpid())
}
