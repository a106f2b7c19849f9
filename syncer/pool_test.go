package syncer_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestPoolMemoryGoesWithTheCounter opens and closes counters, and keeps none of them.
func TestPoolMemoryGoesWithTheCounter(t *testing.T) {
	if !syncer.HugePages {
		t.Skip("under the race detector, and where memory can't be mapped, it is of the Go heap")
	}
	before := mapped(t)
	var most int64
	for range 30 {
		c, err := syncer.New(syncer.Options{Store: embedded.New(embedded.Options{}),
			Placement: twotier.Placement{Partitions: 4}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Open(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			add(t, c, fmt.Sprint("k", i), 1, 0)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		most = max(most, mapped(t)-before)
	}
	const one = 32 << 20
	if most < one {
		t.Fatalf("only %d bytes more were mapped than before", most)
	}
	deadline := time.Now().Add(10 * time.Second)
	for mapped(t)-before > 3*one {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes more are mapped than before", mapped(t)-before)
		}
		runtime.GC()
		runtime.Gosched()
	}
}

// mapped returns the size of this process's address space.
func mapped(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages int64
	if _, err := fmt.Sscan(string(b), &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
