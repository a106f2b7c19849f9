package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestSequencesThatExpiredAreNoLoss: a counter knows of a change, and reads more after the sequence
// of the change's writer has gone. That is a loss, unless the change is so old that the sequence
// has expired.
func TestSequencesThatExpiredAreNoLoss(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	exchange := func(r *syncer.Round) *syncer.Round {
		s.Exchange(t.Context(), []*syncer.Round{r})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r
	}
	key := syncer.KeyRound{Key: []byte("a"), Adds: []syncer.Bucket{counts(second, 1)}}
	gone := exchange(&syncer.Round{Writer: "gone", Seq: 1, Keys: []syncer.KeyRound{key}})
	exchange(&syncer.Round{Writer: "other", Seq: 1, Keys: []syncer.KeyRound{key}})
	srv.Do("DEL", "tt:{p0}!w:gone")
	for age, lost := range map[time.Duration]bool{time.Minute: true, 30 * time.Hour: false} {
		change := fmt.Sprintf("1 %d tt:{p0}!w:gone", time.Now().Add(-age).Unix())
		for _, readOnly := range []bool{false, true} {
			r := exchange(&syncer.Round{Writer: "reader", Epoch: gone.Epoch, LastChange: change,
				ReadOnly: readOnly, Keys: []syncer.KeyRound{{Key: key.Key, Load: true}}})
			if r.Lost != lost {
				t.Errorf("after %v, read only %v: lost %v, want %v", age, readOnly, r.Lost, lost)
			}
		}
	}
}

// TestLoadOfAKeyThatMoves loads a key that is at the other node while its slot moves, and the move
// ends before the key is read there. The reported state of the partition includes the change made
// to the key meanwhile.
func TestLoadOfAKeyThatMoves(t *testing.T) {
	from, to := miniredis.RunT(t), miniredis.RunT(t)
	s := open(t, redisstore.Options{URL: "redis+cluster://" + from.Addr()})
	works(t, s)
	partition, key := s.Partition("k"), s.Address("k")
	state := prefix.StateKey(partition)
	set := func(n int64) {
		fields := redisstore.Fields(counts(second, n))
		to.HSet(key, fields[0].(string), fields[1].(string))
	}
	from.HSet(state, "e", "7", "v", "1", "q", "0")
	set(5)
	from.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		asked := cmd == "HGETALL" && args[0] == key
		if asked {
			c.WriteError(fmt.Sprintf("ASK 0 %s", to.Addr()))
		}
		return asked
	})
	to.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "HGETALL" {
			set(6)
			from.HSet(state, "v", "2")
		}
		if cmd == "ASKING" {
			c.WriteOK()
		}
		return cmd == "ASKING"
	})
	r := &syncer.Round{Partition: partition, Writer: "reader", Epoch: 7, Version: 1, ReadOnly: true,
		Keys: []syncer.KeyRound{{Key: []byte("k"), Load: true}}}
	if send(t, s, r); r.Err != nil || r.Keys[0].Err != nil || len(r.Keys[0].Loaded) != 1 {
		t.Fatalf("%v, %+v", r.Err, r.Keys[0])
	}
	if n := r.Keys[0].Loaded[0].N; n != 6 || r.Version != 2 {
		t.Errorf("it holds %d by version %d, want 6 by version 2", n, r.Version)
	}
}
