package switching

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/seed"
)

// newRand returns random numbers and prints their seed, which TWOTIER_TEST_FIRST repeats.
func newRand(t *testing.T) *rand.Rand {
	first := seed.First()
	t.Logf("TWOTIER_TEST_FIRST=%d", first)
	return rand.New(rand.NewPCG(first, 0))
}

// fill makes sorted sets with events of the last hour, and returns how many each has.
func (b *bed) fill(rng *rand.Rand, keys int) map[string]int64 {
	b.Helper()
	now := time.Now().UnixMilli()
	want := map[string]int64{}
	pipe := b.old.Pipeline()
	for i := range keys {
		key := fmt.Sprint("user", i)
		n := 1 + rng.IntN(60)
		for j := range n {
			ts := now - 5000 - rng.Int64N(50*minute)
			pipe.ZAdd(b.Context(), "rl:"+key, redis.Z{Score: float64(ts), Member: j})
		}
		want[key] = int64(n)
	}
	if _, err := pipe.Exec(b.Context()); err != nil {
		b.Fatal(err)
	}
	return want
}

// compare compares all counts.
func (b *bed) compare(want map[string]int64) {
	b.Helper()
	wrong := 0
	for key, n := range want {
		if got := b.count(key, "1h"); got.Min != n || got.Max != n {
			if wrong++; wrong < 10 {
				b.Errorf("%s: counted %+v, want %d", key, got, n)
			}
		}
	}
	if wrong > 0 {
		b.Errorf("%d of %d keys are wrong", wrong, len(want))
	}
}

// importKilled starts an import and kills it when the server has so many more keys.
func (b *bed) importKilled(more int64, args ...string) {
	b.Helper()
	enough := b.server.Metric("twotier_keys", "") + more
	cmd := b.command(args...)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	for b.server.Metric("twotier_keys", "") < enough {
		select {
		case <-ended:
			b.Fatal("the import has ended before it was killed")
		case <-time.After(time.Millisecond):
		}
	}
	_ = cmd.Process.Kill()
	<-ended
}

// TestKilledImports kills an import at random moments, again and again, and repeats it until it
// ends: all counts are exact.
func TestKilledImports(t *testing.T) {
	b := newBed(t)
	rng := newRand(t)
	want := b.fill(rng, 2000)
	for range 5 {
		b.importKilled(1+rng.Int64N(500), "--pattern", "rl:{key}", "--rate", "5000")
	}
	r := b.imports("--pattern", "rl:{key}")
	t.Logf("the last import counted %d and left out %d", r.Counted, r.Repeated)
	if r.Repeated == 0 || r.Counted == 0 {
		t.Errorf("%+v: no import was killed in the middle", r)
	}
	b.compare(want)
}

// TestImportsAtTheSameTime runs three imports at the same time, also where limits refuse nothing,
// and where all counts are in Redis. Each reports what it has counted itself.
func TestImportsAtTheSameTime(t *testing.T) {
	for _, flags := range [][]string{nil, {"--shadow"}, {"--mode", "redis"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, flags...)
			want := b.fill(newRand(t), 400)
			var all sync.WaitGroup
			var counted, events atomic.Int64
			for range 3 {
				all.Go(func() {
					r, err := b.tryImport("--pattern", "rl:{key}")
					if err != nil || r.Counted+r.Repeated+r.Meanwhile != r.Events {
						t.Errorf("%+v %v", r, err)
					}
					counted.Add(r.Counted)
					events.Store(r.Events)
				})
			}
			all.Wait()
			if counted.Load() > events.Load() { // fewer if an answer got lost
				t.Errorf("%d events are reported as counted, want %d", counted.Load(),
					events.Load())
			}
			b.compare(want)
		})
	}
}

// TestServerDiesDuringAnImport kills the server in the middle of an import, and starts it again:
// the import goes on, or is repeated, and all counts are exact.
func TestServerDiesDuringAnImport(t *testing.T) {
	b := newBed(t)
	want := b.fill(newRand(t), 2000)
	done := make(chan error, 1)
	go func() {
		_, err := b.tryImport("--pattern", "rl:{key}", "--rate", "8000")
		done <- err
	}()
	for b.server.Metric("twotier_keys", "") < 500 {
		time.Sleep(time.Millisecond)
	}
	b.server.Kill()
	b.server = program.Serve(t, proctest.Options{Listen: b.server.Listen}, "--redis",
		b.store.URL(), "--node", "a")
	t.Logf("the interrupted import: %v", <-done)
	r := b.imports("--pattern", "rl:{key}")
	t.Logf("counted %d, left out %d", r.Counted, r.Repeated)
	b.compare(want)
}

// TestLargeKeys imports a key with more elements than a page and a batch have, many of them at the
// same time.
func TestLargeKeys(t *testing.T) {
	b := newBed(t)
	now := time.Now().UnixMilli()
	const n = 30_000
	pipe := b.old.Pipeline()
	for i := range n {
		ts := now - 10*minute + int64(i)/3*3 // three at a time
		if i < 2500 {
			ts = now - 20*minute // more than a page at the same time
		}
		pipe.ZAdd(t.Context(), "rl:large", redis.Z{Score: float64(ts), Member: i})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []report{{Counted: n}, {Repeated: n}} {
		if r := b.imports("--pattern", "rl:{key}"); r.Counted != want.Counted ||
			r.Repeated != want.Repeated {
			t.Errorf("%+v", r)
		}
	}
	if got := b.count("large", "1h"); got.Min != n || got.Max != n {
		t.Errorf("counted %+v, want %d", got, n)
	}
}
