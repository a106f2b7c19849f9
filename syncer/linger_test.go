package syncer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
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
