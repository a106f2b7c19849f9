package syncer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestTopOfSomeNamespaces lists no keys of other namespaces, however much those count, and looks
// back as far as each namespace reaches.
func TestTopOfSomeNamespaces(t *testing.T) {
	short, err := leaparray.NewLadder(0, leaparray.Level{Width: time.Second, Count: 60})
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, syncer.Options{
		Store:      embedded.New(embedded.Options{}),
		Namespaces: map[string]syncer.Namespace{"short": {Ladder: short}},
	})
	for _, row := range []twotier.KeyCount{{NS: "busy", Key: "k", Count: 9},
		{NS: "default", Key: "d", Count: 2}, {NS: "short", Key: "s", Count: 3},
		{NS: "short", Key: "t", Count: 1}} {
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{NS: []byte(row.NS),
			Key: []byte(row.Key), N: row.Count}}}
		var res twotier.Result
		if err := c.Do(t.Context(), &op, &res); err != nil {
			t.Fatal(err)
		}
	}
	const week = 7 * 86_400_000
	rows, err := c.TopOf(t.Context(), []string{"short", "default"}, 2, week)
	if want := []twotier.KeyCount{{NS: "short", Key: "s", Count: 3},
		{NS: "default", Key: "d", Count: 2}}; err != nil || !slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
	for prefix, want := range map[string]int{"": 4, "s": 1, "k": 1, "kk": 0, "S": 0} {
		rows, err := c.TopWithPrefix(t.Context(), prefix, 9, 60_000)
		if err != nil || len(rows) != want {
			t.Errorf("with prefix %q: %v, %v, want %d", prefix, rows, err, want)
		}
	}
	if _, err := c.Top(t.Context(), 2, week); err == nil {
		t.Error("a window that no namespace covers is accepted")
	}
}

// TestSnapshotStaysAsItIs counts the key further, and reads all levels of an earlier snapshot.
func TestSnapshotStaysAsItIs(t *testing.T) {
	c := open(t, syncer.Options{Store: embedded.New(embedded.Options{})})
	add := func(n int64) {
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte("k"), N: n}}}
		var res twotier.Result
		if err := c.Do(t.Context(), &op, &res); err != nil {
			t.Fatal(err)
		}
	}
	add(3)
	v, now, err := c.Snapshot(t.Context(), nil, []byte("k"), false)
	if err != nil {
		t.Fatal(err)
	}
	add(4)
	for _, window := range []int64{60_000, 3_600_000, 86_400_000} {
		if e, ok := v.Count(window, now, true); !ok || e.Count != 3 {
			t.Errorf("%d ms: %+v, want 3", window, e)
		}
	}
	later, now, err := c.Snapshot(t.Context(), []byte(twotier.DefaultNamespace), []byte("k"), false)
	if e, _ := later.Count(60_000, now, true); err != nil || e.Count != 7 {
		t.Errorf("%+v, %v, want 7", e, err)
	}
	if v, now, err := c.Snapshot(t.Context(), nil, []byte("nobody"), false); err != nil ||
		fmt.Sprint(v.Count(60_000, now, true)) != "{0 0 0 1} true" {
		t.Errorf("of nothing: %+v, %v", v, err)
	}
}
