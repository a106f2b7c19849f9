package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestLoadOfAKeyThatMoves loads a key that is at the other node while its slot moves, and the move
// ends before the key is read there. The reported state of the partition includes the change made
// to the key meanwhile.
func TestLoadOfAKeyThatMoves(t *testing.T) {
	from, to := miniredis.RunT(t), miniredis.RunT(t)
	s := open(t, redisstore.Options{URL: "redis+cluster://" + from.Addr()})
	works(t, s)
	partition, key := s.Partition("k"), s.Address("k")
	state, field := prefix.StateKey(partition), redisstore.Field(second)
	from.HSet(state, "e", "7", "v", "1", "q", "0")
	to.HSet(key, field, "5")
	from.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		asked := cmd == "HGETALL" && args[0] == key
		if asked {
			c.WriteError(fmt.Sprintf("ASK 0 %s", to.Addr()))
		}
		return asked
	})
	to.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "HGETALL" {
			to.HSet(key, field, "6")
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
