package syncer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestIdlePartitionsAreVerifiedTogether counts keys of many partitions at different moments. From
// then on each partition is verified every five seconds, with a few exchanges for all.
func TestIdlePartitionsAreVerifiedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &exchanges{Store: embedded.New(embedded.Options{})}
		place := twotier.Placement{Partitions: 256}
		c := open(t, syncer.Options{Store: store, Placement: place, Exchanges: 2,
			FlushInterval: 100 * time.Millisecond, VerifyInterval: 5 * time.Second})
		used := map[int]bool{}
		for i := 0; len(used) < 200; i++ {
			key := fmt.Sprint("k", i)
			used[place.Of(nil, []byte(key))] = true
			add(t, c, key, 1, 0)
			time.Sleep(19 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		store.calls.Store(0)
		store.rounds.Store(0)
		const periods = 20
		time.Sleep(periods * 5 * time.Second)
		calls, rounds := store.calls.Load(), store.rounds.Load()
		if most := int64(2 * 2 * (periods + 1)); calls > most {
			t.Errorf("%d exchanges of %d rounds, want at most %d", calls, rounds, most)
		}
		least := int64((periods - 1) * len(used))
		if most := 2 * least; rounds < least || rounds > most {
			t.Errorf("%d rounds, want %d to %d", rounds, least, most)
		}
	})
}

// exchanges counts exchanges with a store, and their rounds.
type exchanges struct {
	syncer.Store
	calls, rounds atomic.Int64
}

func (e *exchanges) Exchange(ctx context.Context, rounds []*syncer.Round) {
	e.calls.Add(1)
	e.rounds.Add(int64(len(rounds)))
	e.Store.Exchange(ctx, rounds)
}
