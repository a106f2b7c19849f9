package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// calls returns how many scripts the server has received.
func calls(t *testing.T, srv *redistest.Server) (n int) {
	t.Helper()
	stats, err := srv.Do("INFO", "commandstats").Text()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		var c int
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &c); err == nil {
			n += c
		}
	}
	return n
}

// TestRoundsGoTogether: one script applies the rounds of many partitions, up to a bound. A refused
// round doesn't affect the rounds before or after it.
func TestRoundsGoTogether(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL(), Placement: twotier.Placement{Partitions: 1021}})
	works(t, s)
	taken := map[int]bool{s.Partition("a"): true} // works has counted there
	var rounds []*syncer.Round
	var keys []string
	for i := 0; len(rounds) < 200; i++ {
		key := fmt.Sprint("k", i)
		if p := s.Partition(key); !taken[p] {
			taken[p] = true
			rounds, keys = append(rounds, oneRound(s, key, 1)), append(keys, key)
		}
	}
	bad := s.Partition(keys[11])
	if err := srv.Do("SET", prefix.StateKey(bad), "not ours").Err(); err != nil {
		t.Fatal(err)
	}
	before := calls(t, srv)
	s.Exchange(t.Context(), rounds)
	if n := calls(t, srv) - before; n != 4 {
		t.Errorf("%d scripts for %d rounds, want 4 of 64 at most", n, len(rounds))
	}
	for i, r := range rounds {
		want := int64(1)
		if i == 11 {
			want = 0
			if !errors.Is(r.Err, syncer.ErrNotApplied) ||
				!strings.Contains(r.Err.Error(), "WRONGTYPE") {
				t.Errorf("the partition with a foreign value: %v", r.Err)
			}
		} else if r.Err != nil {
			t.Errorf("round %d: %v", i, r.Err)
		}
		if got := hget(t, srv, s, keys[i]); got != want {
			t.Errorf("%s: %d in Redis, want %d", keys[i], got, want)
		}
	}
	if err := srv.Do("DEL", prefix.StateKey(bad)).Err(); err != nil {
		t.Fatal(err)
	}
	s.Exchange(t.Context(), rounds) // again, unchanged
	for i, r := range rounds {
		if got := hget(t, srv, s, keys[i]); r.Err != nil || got != 1 {
			t.Errorf("%s: %d in Redis, %v", keys[i], got, r.Err)
		}
	}
}
