package micro_test

import (
	"sync"
	"testing"
	"time"

	"github.com/alibaba/sentinel-golang/core/base"
	sentinel "github.com/alibaba/sentinel-golang/core/stat/base"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
)

// guarded is a view with a mutex. Sentinel's array locks itself and reads the clock. Ours does
// neither: its users lock many keys at once and read the clock once per request. So ours is
// measured twice: as it is, and with a mutex and a clock reading on every call.
type guarded struct {
	mu   sync.Mutex
	view leaparray.View
}

func newGuarded(b *testing.B, levels ...leaparray.Level) *guarded {
	l, err := leaparray.NewLadder(0, levels...)
	must.Succeed(b, err)
	return &guarded{view: leaparray.View{Ladder: l}}
}

func (g *guarded) add(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addAtLocked(time.Now().UnixMilli(), n)
}

func (g *guarded) addAtLocked(now, n int64) {
	g.view.Now = now
	g.view.Put(&g.view.A, leaparray.Heap{}, g.view.Cell(now), n)
}

func (g *guarded) count(window int64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.view.Now = time.Now().UnixMilli()
	e, _ := g.view.Count(window, g.view.Now, true)
	return e.Hi
}

// fill gives every bucket of a minute an event. Sentinel's array has all its buckets from the
// start, and reads all.
func (g *guarded) fill() *guarded {
	now := time.Now().UnixMilli()
	for age := int64(59); age >= 0; age-- {
		g.addAtLocked(now-age*1000, 1)
	}
	return g
}

// sum keeps the compiler from optimizing the counting away.
var sum int64

var seconds = leaparray.Level{Width: time.Second, Count: 60}

func BenchmarkLeapArrayAdd(b *testing.B) {
	b.Run("sentinel", func(b *testing.B) {
		a := sentinel.NewBucketLeapArray(60, 60_000)
		b.ReportAllocs()
		for b.Loop() {
			a.AddCount(base.MetricEventPass, 1)
		}
	})
	b.Run("twotier", func(b *testing.B) {
		g := newGuarded(b, seconds).fill()
		at := g.view.Cell(g.view.Now)
		b.ReportAllocs()
		for b.Loop() {
			g.view.Ladder.Add(g.view.A, at, 1)
		}
	})
	b.Run("twotier-locked-with-clock", func(b *testing.B) {
		g := newGuarded(b, seconds).fill()
		b.ReportAllocs()
		for b.Loop() {
			g.add(1)
		}
	})
	b.Run("twotier-5-levels", func(b *testing.B) {
		g := newGuarded(b, leaparray.DefaultLevels()...).fill()
		b.ReportAllocs()
		for b.Loop() {
			g.add(1)
		}
	})
}

func BenchmarkLeapArrayCount60(b *testing.B) {
	b.Run("sentinel", func(b *testing.B) {
		a := sentinel.NewBucketLeapArray(60, 60_000)
		b.ReportAllocs()
		for b.Loop() {
			sink += a.Count(base.MetricEventPass)
		}
	})
	b.Run("twotier", func(b *testing.B) {
		g := newGuarded(b, seconds).fill()
		b.ReportAllocs()
		for b.Loop() {
			e, _ := g.view.Count(60_000, g.view.Now, true)
			sum += e.Hi
		}
	})
	b.Run("twotier-locked-with-clock", func(b *testing.B) {
		g := newGuarded(b, seconds).fill()
		b.ReportAllocs()
		for b.Loop() {
			sink += g.count(60_000)
		}
	})
}

// BenchmarkLeapArrayAddParallel puts all cores on one key: Sentinel adds atomically, ours waits for
// its mutex.
func BenchmarkLeapArrayAddParallel(b *testing.B) {
	b.Run("sentinel", func(b *testing.B) {
		a := sentinel.NewBucketLeapArray(60, 60_000)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				a.AddCount(base.MetricEventPass, 1)
			}
		})
	})
	b.Run("twotier", func(b *testing.B) {
		g := newGuarded(b, seconds).fill()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				g.add(1)
			}
		})
	})
}

// sink keeps the compiler from optimizing results away.
var sink int64
