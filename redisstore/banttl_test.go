package redisstore_test

import (
	"strconv"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/syncer"
)

// TestBansLiveAsLongAsTheyLast: where each bucket has a time to live, those of a ban live as long
// as its own ladder needs them, whatever the ladder of the namespace that it is of.
func TestBansLiveAsLongAsTheyLast(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := withLevels(t, srv.URL(), "default", "1s x 60, 1m x 60", "shop", "100ms x 20")
	for probed := range 2 { // the levels are read from Redis in between
		for _, ns := range []string{"default", "shop", "of nobody"} {
			name, _ := syncer.BanKey([]byte(ns), "rule", []byte("key"))
			for id, lv := range syncer.BanLadder().Levels() {
				ttl, err := strconv.ParseInt(s.FieldTTL(string(name), id), 10, 64)
				if err != nil || ttl < lv.Span().Milliseconds() {
					t.Errorf("%d: bans of %s in buckets of %v live for %d ms, %v", probed, ns,
						lv.Width, ttl, err)
				}
			}
		}
		if err := probe(t, s); err != nil {
			t.Fatal(err)
		}
	}
	if ttl := s.FieldTTL("default", 0); ttl == s.FieldTTL(syncer.BanNamespace+"/default", 0) {
		t.Errorf("buckets of seconds live for %s ms", ttl)
	}
}
