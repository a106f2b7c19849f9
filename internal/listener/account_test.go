package listener_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/listener"
)

// TestWaitersOfAClientAreServedInOrder: a large request that waits is not overtaken by small ones
// of its client, but by requests of others.
func TestWaitersOfAClientAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := listener.Account{Most: 100, Each: 60}
		greedy, other := a.NewShare(), a.NewShare()
		var mu sync.Mutex
		var served []string
		take := func(name string, s *listener.Share, n int64, wait time.Duration) {
			go func() {
				ok := s.Take(n, time.Now().Add(wait))
				mu.Lock()
				defer mu.Unlock()
				served = append(served, fmt.Sprint(name, " ", ok))
			}()
			synctest.Wait()
		}
		take("first", greedy, 50, time.Hour)
		take("large", greedy, 40, time.Hour)
		take("small", greedy, 5, time.Hour)
		take("brief", greedy, 5, time.Second)
		take("other", other, 50, time.Hour)
		time.Sleep(2 * time.Second)
		greedy.Release(50)
		synctest.Wait()
		slices.Sort(served[min(3, len(served)):]) // both are served at once
		want := []string{"first true", "other true", "brief false", "large true", "small true"}
		if !slices.Equal(served, want) {
			t.Errorf("%q, want %q", served, want)
		}
		if a.InUse() != 95 || a.HasWaiters() {
			t.Errorf("%d in use", a.InUse())
		}
	})
}

// TestAccountsStayWithinTheirBounds takes and returns at random, in many goroutines: no bound is
// exceeded, no waiter is forgotten, and nobody who gives up loses anything.
func TestAccountsStayWithinTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := listener.Account{Most: 1000, Each: 600}
		clients := []*listener.Share{a.NewShare(), a.NewShare(), a.NewShare(), a.NewShare()}
		gone := make(chan struct{})
		var working sync.WaitGroup
		for i := range 40 {
			working.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 0))
				for range 200 {
					s, n := clients[random.IntN(len(clients))], 1+random.Int64N(400)
					by := time.Now().Add(time.Duration(random.IntN(20)) * time.Millisecond)
					if s.TakeUnless(gone, n, by) {
						if used := a.InUse(); used > a.Most {
							t.Errorf("%d in use", used)
						}
						time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
						s.Release(n)
					}
				}
			})
		}
		working.Wait()
		if a.InUse() != 0 || a.HasWaiters() || !clients[0].TryTake(a.Each) {
			t.Errorf("%d in use in the end", a.InUse())
		}
	})
}
