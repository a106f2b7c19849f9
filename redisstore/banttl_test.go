package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestBansLiveAsLongAsTheyLast: the key of a ban lives as long as the ban ladder needs it, whatever
// the ladder of the banned key's namespace.
func TestBansLiveAsLongAsTheyLast(t *testing.T) {
	t.Parallel()
	expiries(t, testBansLive)
}

func testBansLive(t *testing.T, open opener) {
	short := ladderOf(t, leaparray.Level{Width: 100 * time.Millisecond, Count: 20})
	s := open(t, redisstore.Options{Ladders: map[string]*leaparray.Ladder{
		twotier.DefaultNamespace: short, "shop": defaultLadder(t)}})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	place := twotier.Placement{Partitions: twotier.DefaultPartitions}
	for i, ns := range []string{"", "shop", "of nobody"} {
		ban := twotier.Check{Kind: twotier.BanCheck, Ban: twotier.Ban{To: 1},
			Limits: limits(twotier.MaxBan.Milliseconds(), 0)}
		key := check(fmt.Sprint("k", i), 2, 1000, 1)
		key.NS = []byte(ns)
		ban.NS, ban.Key = twotier.BanKey(key.NS, "rule", key.Key)
		if res := acquire(t, d, key, ban); !res.Checks[1].Refused {
			t.Fatalf("no ban has started: %+v", res)
		}
		name := redisstore.Key(place.Of(ban.NS, ban.Key), ban.NS, ban.Key)
		ttl, err := s.Client().PTTL(t.Context(), name).Result()
		most := syncer.KeyTTL(syncer.CompanionLadders()[twotier.BanNamespace])
		if err != nil || ttl < twotier.MaxBan || ttl.Milliseconds() > most {
			t.Errorf("a ban in %q lives for %v, %v", ns, ttl, err)
		}
	}
}
