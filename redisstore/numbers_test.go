package redisstore_test

import (
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
)

// withLevels returns a store that has joined, under ladders given by namespace and text.
func withLevels(t *testing.T, url string, texts ...string) *redisstore.Store {
	t.Helper()
	ladders := map[string]*leaparray.Ladder{}
	for i := 0; i < len(texts); i += 2 {
		l, err := leaparray.ParseLadder(texts[i+1])
		if err != nil {
			t.Fatal(err)
		}
		ladders[texts[i]] = l
	}
	return open(t, redisstore.Options{URL: url, Ladders: ladders})
}

// TestLearnNumbersWithoutRedis: a process that can't ask Redis numbers the levels of its ladders as
// others say that they are, whatever namespaces with the default ladder it lists.
func TestLearnNumbersWithoutRedis(t *testing.T) {
	t.Parallel()
	const old, finer, other = "1s x 60, 1m x 60", "100ms x 50, 1s x 60, 1m x 60", "2s x 30"
	srv := redistest.Start(t)
	before := withLevels(t, srv.URL(), "default", old, "b", other)
	works(t, before)
	if text := before.Numbers(); text != "" {
		t.Errorf("numbers that are positions: %q", text)
	}
	after := withLevels(t, srv.URL(), "default", finer, "b", other)
	works(t, after)
	const want = "default=1s x 60, 1m x 60, 100ms x 0/50"
	if text := after.Numbers(); text != want {
		t.Fatalf("numbers: %q, want %q", text, want)
	}
	late := withLevels(t, "redis://127.0.0.1:1", "default", finer, "a", finer, "b", other)
	for range 2 { // both others say so
		if !late.Learn(want) || late.Numbers() != want {
			t.Errorf("it can't use them, and says %q", late.Numbers())
		}
	}
	all, err := late.Ladders()
	if err != nil {
		t.Fatal(err)
	}
	for ns, ids := range map[string][]uint8{"default": {2, 0, 1}, "a": {2, 0, 1}, "b": {0}} {
		for level, want := range ids {
			if id := all[ns].ID(level); id != want {
				t.Errorf("%s: level %d has number %d, want %d", ns, level, id, want)
			}
		}
	}
	if all["default"].Reach(0) != 0 || all["default"].Reach(1) != 60_000 {
		t.Errorf("reach: %d, %d", all["default"].Reach(0), all["default"].Reach(1))
	}
	for _, text := range []string{"?", "default=1m x 60, 1s x 60, 100ms x 0", "default=1s x 60",
		"c=1s x 60", want + ";c=1s x 60"} {
		if late.Learn(text) {
			t.Errorf("it can use %q", text)
		}
	}
	if !after.Learn("?") {
		t.Error("one that has compared its ladders with Redis needs to learn nothing")
	}
}

// TestFollowRestoresWhatAllAgreeOn: Redis loses everything while nobody counts. The next process to
// come finds what the others agree on.
func TestFollowRestoresWhatAllAgreeOn(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := withLevels(t, srv.URL(), "default", "1s x 60, 1m x 60")
	works(t, s)
	flushAll(t, srv)
	if err := s.Follow(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	late := withLevels(t, srv.URL(), "default", "100ms x 50, 1s x 60, 1m x 60")
	if err := probe(t, late); err != nil || late.Numbers() == "" {
		t.Errorf("it has numbers %q of its own, %v", late.Numbers(), err)
	}
}
