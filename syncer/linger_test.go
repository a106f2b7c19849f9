package syncer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/syncer"
)

// writeCounter counts how often each key is written.
type writeCounter struct {
	*pacedStore
	mu     sync.Mutex
	writes map[string]int
}

func (s *writeCounter) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.mu.Lock()
	for _, r := range rounds {
		for i := range r.Keys {
			if len(r.Keys[i].Adds) > 0 {
				s.writes[string(r.Keys[i].Key)]++
			}
		}
	}
	s.mu.Unlock()
	s.pacedStore.Exchange(ctx, rounds)
}

// most returns the largest number of writes of a key since the last call, and the mean.
func (s *writeCounter) most() (most int, mean float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.writes {
		most = max(most, n)
		mean += float64(n) / float64(len(s.writes))
	}
	clear(s.writes)
	return most, mean
}

// regulars are known keys that count again and again.
type regulars struct {
	names []string
	every time.Duration // between two events of a key
	stop  context.CancelFunc
	done  sync.WaitGroup
}

func (k *regulars) start(t *testing.T, c *syncer.Counter) {
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	t.Cleanup(stop)
	k.done.Go(func() {
		for ctx.Err() == nil {
			for _, name := range k.names {
				add(t, c, name, 1, 0)
			}
			time.Sleep(k.every)
		}
	})
}

func (k *regulars) end() {
	k.stop()
	k.done.Wait()
}

func newRegulars(n int, every time.Duration) *regulars {
	k := &regulars{every: every}
	for i := range n {
		k.names = append(k.names, fmt.Sprint("known-", i))
	}
	return k
}

// TestAKeyIsWrittenFiveTimesASecond: whatever the rate of a key, and however many rounds the keys
// of its partition fill. The interval may be a tenth shorter.
func TestAKeyIsWrittenFiveTimesASecond(t *testing.T) {
	for _, partitions := range []int{1, 64} {
		t.Run(fmt.Sprint("partitions ", partitions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &writeCounter{pacedStore: newPaced(10 * time.Microsecond),
					writes: map[string]int{}}
				c := open(t, syncer.Options{Store: store, MaxLag: 10 * time.Second,
					FlushInterval: 200 * time.Millisecond,
					Placement:     twotier.Placement{Partitions: partitions}})
				known := newRegulars(1500, 4*time.Millisecond)
				for range 2 {
					for _, name := range known.names {
						add(t, c, name, 1, 0)
					}
					flush(t, c)
				}
				store.most()
				known.start(t, c)
				const seconds = 2
				time.Sleep(seconds * time.Second)
				known.end()
				if most, mean := store.most(); most > 5*seconds*11/10+1 || mean < 4*seconds {
					t.Errorf("in %d s a key was written %d times, in the mean %.1f times", seconds,
						most, mean)
				}
			})
		})
	}
}

const (
	lingerLag      = 8 * time.Second
	lingerInterval = 50 * time.Millisecond
)

// openLoaded returns a counter with known keys that count more often than the store could write
// them in each flush interval.
func openLoaded(t *testing.T) (*syncer.Counter, *writeCounter, *regulars) {
	store := &writeCounter{pacedStore: newPaced(perKey), writes: map[string]int{}}
	c := open(t, syncer.Options{Store: store, MaxLag: lingerLag, FlushInterval: lingerInterval,
		Placement: twotier.Placement{Partitions: 16}, Exchanges: 1})
	known := newRegulars(1100, lingerInterval)
	known.start(t, c)
	time.Sleep(12 * time.Second)
	return c, store, known
}

// TestLoadLengthensTheInterval: under load known keys are written less often, and wait for up to a
// quarter of the lag. A store that becomes ten times slower has everything within the lag, and new
// keys are refused. Without load, the interval is the configured one.
func TestLoadLengthensTheInterval(t *testing.T) {
	race.SkipLong(t)
	synctest.Test(t, func(t *testing.T) {
		c, store, known := openLoaded(t)
		store.most()
		const seconds = 6
		age := oldest(c, seconds*time.Second)
		_, mean := store.most()
		t.Logf("the oldest count was %v old, and a key was written %.1f times a second", age,
			mean/seconds)
		if age < lingerLag/10 || age > lingerLag/4 || mean > 3*seconds {
			t.Errorf("the oldest count was %v old, and a key was written %.1f times a second", age,
				mean/seconds)
		}
		if stale := c.MaxStaleness(); stale < age || stale > lingerLag/4+2*lingerInterval {
			t.Errorf("counts are %v old, and the counter declares %v", age, stale)
		}
		store.perKey.Store(int64(10 * perKey))
		f := (&flood{t: t, c: c, patience: 20 * time.Millisecond, name: newKeys}).start(2)
		age = oldest(c, lingerLag)
		t.Logf("once the store was slower, the oldest count was %v old; %d were refused", age,
			f.refused.Load())
		if age > lingerLag {
			t.Errorf("once the store is slower, the oldest count is %v old", age)
		}
		if f.end(); f.refused.Load() == 0 {
			t.Error("none of the new keys was refused")
		}
		store.perKey.Store(int64(perKey) / 100)
		time.Sleep(lingerLag)
		if age = oldest(c, time.Second); age > lingerInterval*5/4 {
			t.Errorf("without load the oldest count is %v old", age)
		}
		known.end()
	})
}

// TestNobodyWaitsForKeysThatLinger: under load, an acknowledgement, a reset, a handoff and the end
// of the counter take no longer than the keys that wait for the store.
func TestNobodyWaitsForKeysThatLinger(t *testing.T) {
	race.SkipLong(t)
	synctest.Test(t, func(t *testing.T) {
		c, _, known := openLoaded(t)
		timed := func(what string, act func() error) {
			if stale := c.MaxStaleness(); stale < lingerLag/10 {
				t.Errorf("nothing lingers: counts are %v old at most", stale)
			}
			began := time.Now()
			err := act()
			if took := time.Since(began); err != nil || took > lingerLag/16 {
				t.Errorf("%s took %v: %v", what, took, err)
			}
		}
		ctx := context.Background()
		timed("an acknowledgement", func() error {
			return c.Do(ctx, addOp(known.names[0], 1, twotier.AckStore), new(twotier.Result))
		})
		timed("a reset", func() error { return c.ResetKey(ctx, nil, []byte(known.names[1])) })
		known.end()
		timed("a handoff", func() error { return c.BeginHandoff(ctx, 3) })
		c.StartOwning(3)
		timed("the end", func() error { return c.Close(ctx) })
	})
}
