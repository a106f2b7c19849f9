package redisstore_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestAShorterLadderLeavesWhatOthersKeep: a process that lacks the longest level of others, or has
// fewer buckets of it, neither shortens the life of a key that they have counted nor deletes their
// buckets, in either mode.
func TestAShorterLadderLeavesWhatOthersKeep(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, expiry := range redistest.Expiries(t, srv) {
		for longer, id := range map[string]int{
			"1s x 60, 1m x 60, 15m x 96": 2, "1s x 60, 1m x 1440": 1} {
			t.Run(expiry+", "+longer, func(t *testing.T) {
				flushAll(t, srv)
				besideAShorterLadder(t, srv, expiry, longer, id)
			})
		}
	}
}

// besideAShorterLadder counts a key by a ladder of a day, whose longest level has this number, and
// then by one of an hour.
func besideAShorterLadder(t *testing.T, srv *redistest.Server, expiry, longer string, id int) {
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	add := func(c doer, ts int64) {
		t.Helper()
		op := syncer.Op{Kind: syncer.Add, TS: ts, Ack: syncer.AckStore,
			Checks: []syncer.Check{{Key: []byte("k"), N: 1}}}
		if err := c.Do(t.Context(), &op, new(syncer.Result)); err != nil {
			t.Fatal(err)
		}
	}
	s, long := withLadder(t, srv, expiry, longer, now.Load)
	const day, minute = 24 * time.Hour, int64(60_000)
	hash := redisstore.Key(s.Partition("k"), nil, []byte("k"))
	lives := func(when string) {
		t.Helper()
		ttl, err := srv.Do("PTTL", hash).Int64()
		if left := time.Duration(ttl) * time.Millisecond; err != nil || left < 2*day-time.Hour {
			t.Errorf("%s the key lives for %v, %v", when, left, err)
		}
	}
	for at := int64(1); at < 90; at++ { // the newest ones are not further back than an hour
		add(long, now.Load()-at*15*minute)
	}
	lives("counted by the longer ladder")
	kept := bucketsOf(t, s, expiry, hash, id)
	other, short := withLadder(t, srv, expiry, "1s x 60, 1m x 60", now.Load)
	for _, c := range []doer{short, openDirect(t, redisstore.DirectOptions{Store: other,
		Now: now.Load})} {
		load := syncer.Op{Kind: syncer.Count, Checks: []syncer.Check{{Key: []byte("k"),
			Limits: []syncer.Limit{{Window: 60 * minute}}}}}
		if err := c.Do(t.Context(), &load, new(syncer.Result)); err != nil {
			t.Fatal(err)
		}
		now.Add(2 * minute)
		for at := range int64(59) {
			add(c, now.Load()-at*1000)
			add(c, now.Load()-at*minute)
		}
		lives("counted by the shorter ladder")
	}
	if ttl, err := strconv.ParseInt(other.FieldTTL("default", id), 10, 64); err != nil ||
		ttl < day.Milliseconds() {
		t.Errorf("the buckets of others live for %d ms, %v", ttl, err)
	}
	if len(kept) < 80 {
		t.Errorf("the longer ladder had counted in %d buckets", len(kept))
	}
	after := bucketsOf(t, other, expiry, hash, id)
	for index, n := range kept {
		if after[index] < n {
			t.Errorf("bucket %d held %d and holds %d", index, n, after[index])
		}
	}
}

// withLadder returns a store and a counter with this ladder.
func withLadder(t *testing.T, srv *redistest.Server, expiry, text string,
	now func() int64) (*redisstore.Store, *syncer.Counter) {
	t.Helper()
	l, err := leaparray.ParseLadder(text)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, redisstore.Options{URL: srv.URL(), Ladders: ladders(l),
		Expiry: redisstore.Expiry(expiry)})
	if err := probe(t, s); err != nil {
		t.Fatal(err)
	}
	all, err := s.Ladders()
	if err != nil {
		t.Fatal(err)
	}
	return s, openCounter(t, syncer.Options{Store: s, Placement: s.Placement(), Now: now,
		Namespaces: map[string]syncer.Namespace{"default": {Ladder: all["default"]}}})
}

// bucketsOf returns the counts that a key has in the buckets of a level.
func bucketsOf(t *testing.T, s *redisstore.Store, expiry, hash string, id int) map[int64]int64 {
	t.Helper()
	command := "HGETALL"
	if expiry == "tairhash" {
		command = "EXHGETALL"
	}
	flat, err := s.Client().Do(t.Context(), command, hash).Slice()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[int64]int64{}
	for _, b := range redisstore.ParseBuckets(flat) {
		if int(b.Level) == id {
			counts[b.Index] = b.N
		}
	}
	return counts
}
