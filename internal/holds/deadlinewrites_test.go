package holds_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
)

// TestAwaitedDeadlinesOutliveTheirNode: once a node has awaited a deadline, another one releases
// the hold, however soon the first one dies. While the store is down, nothing is promised.
func TestAwaitedDeadlinesOutliveTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deadlineStore{slots: map[int64]map[string]bool{}}
		dead, other := newReleaser(store), newReleaser(store)
		defer other.Close()
		var awaiting sync.WaitGroup
		for i := range 3 * idsAtOnce {
			id, until := fmt.Sprint(i), dead.Now()+4000
			dead.learn(map[string]int64{id: until})
			ticket := dead.Add(id, until)
			awaiting.Go(func() {
				if err := dead.Await(t.Context(), ticket); err != nil || !store.has(id) {
					t.Errorf("%s is kept: %v, %v", id, store.has(id), err)
				}
			})
		}
		awaiting.Wait()
		store.setDown(true)
		ticket := dead.Add("late", dead.Now()+4000)
		dead.Remove("0", dead.until["0"])
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := dead.Await(ctx, ticket); !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("without the store: %v", err)
		}
		dead.Kill()
		store.setDown(false)
		other.learn(dead.until)
		time.Sleep(20 * time.Second)
		if late := other.late(); len(late) != 3*idsAtOnce {
			t.Errorf("%d are released", len(late))
		}
	})
}

// TestDeadlinesThatAreNotKept: a deadline for which there is no room can't be awaited, and without
// a store there is nothing to await.
func TestDeadlinesThatAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deadlineStore{down: true, slots: map[int64]map[string]bool{}}
		full := newReleaser(store)
		defer full.Close()
		full.Memory = 4000
		last := holds.Ticket(0)
		for i := range 20 {
			last = full.Add(fmt.Sprint(i), full.Now()+60_000)
		}
		if err := full.Await(t.Context(), last); !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("a full log: %v", err)
		}
		alone := newReleaser(nil)
		defer alone.Close()
		if err := alone.Await(t.Context(), alone.Add("1", alone.Now()+1)); err != nil {
			t.Error(err)
		}
	})
}
