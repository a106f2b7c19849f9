package syncer_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
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

// TestUnlistedKeysAreNotOnTop although they count most; they are counted and read like others.
func TestUnlistedKeysAreNotOnTop(t *testing.T) {
	c := open(t, syncer.Options{
		Store:      embedded.New(embedded.Options{}),
		Namespaces: map[string]syncer.Namespace{"quiet": {Unlisted: true}},
	})
	for ns, n := range map[string]int64{"quiet": 9, "sms": 2} {
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{NS: []byte(ns),
			Key: []byte("k"),
			N:   n, Limits: []twotier.Limit{{Window: 60_000, Max: 100}}}}}
		var res twotier.Result
		if err := c.Do(t.Context(), &op, &res); err != nil || res.Checks[0].Limits[0].Count != n {
			t.Errorf("%s: %+v, %v", ns, res, err)
		}
	}
	rows, err := c.Top(t.Context(), 1, 60_000)
	if want := []twotier.KeyCount{{NS: "sms", Key: "k", Count: 2}}; err != nil ||
		!slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
}

// TestTopLeases lists the keys of any namespace with the most open leases: neither ended nor
// returned ones, nor marks of settled holds, nor bans, nor events. By events the leases are not
// listed.
func TestTopLeases(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, Store: embedded.New(embedded.Options{})})
	take := func(ns, key string, n, until int64) {
		of, name := twotier.LeaseKey([]byte(ns), "", []byte(key))
		do(t, c, twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
			{Kind: twotier.LeaseCheck, NS: of, Key: name, N: n, Until: until,
				Limits: limits(1, 1<<40)}}})
	}
	for i := range int64(300) { // a search keeps only the first few
		take("many", fmt.Sprint("k", i), 1+i/299, t0+1000)
	}
	take("", "bob", 3, t0+1000)
	take("", "bob", 1, t0+500)
	take("", "slash/ann", 5, t0+2000)
	take("", "slash/ann", -2, t0+2000)
	take("sms", "bob", 9, t0+400)
	take("returned", "k", 4, t0+1000)
	take("returned", "k", -4, t0+1000)
	add(t, c, "events", 1000, 0)
	settled, name := twotier.SettledKey(1000, nil, "hold", []byte("settled"))
	do(t, c, twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Kind: twotier.LeaseCheck,
		NS: settled, Key: name, N: 99, Until: t0 + 60_000, Limits: limits(1, 1<<40)}}})
	lists := func(n int, want ...twotier.KeyCount) {
		t.Helper()
		rows, err := c.TopLeases(t.Context(), n)
		if err != nil || !slices.Equal(rows, want) {
			t.Errorf("at %d: %v, %v, want %v", clk.Now()-t0, rows, err, want)
		}
	}
	bob, ann := twotier.KeyCount{NS: "default", Key: "bob", Count: 4},
		twotier.KeyCount{NS: "default", Key: "slash/ann", Count: 3}
	lists(3, twotier.KeyCount{NS: "sms", Key: "bob", Count: 9}, bob, ann)
	lists(1, twotier.KeyCount{NS: "sms", Key: "bob", Count: 9})
	clk.set(t0 + 400)
	lists(2, bob, ann)
	clk.set(t0 + 999)
	bob.Count = 3
	lists(3, bob, ann, twotier.KeyCount{NS: "many", Key: "k299", Count: 2})
	clk.set(t0 + 1000)
	lists(3, ann)
	clk.set(t0 + 2000)
	lists(3)
	rows, err := c.Top(t.Context(), 9, 3_600_000)
	if want := []twotier.KeyCount{{NS: "default", Key: "events", Count: 1000}}; err != nil ||
		!slices.Equal(rows, want) {
		t.Errorf("by events: %v, %v, want %v", rows, err, want)
	}
}

// TestSampleIsUniform samples 500 of 5,000 keys on two nodes: the merged sample has each tenth of
// the keys, in the order of their counts, about as often as any other. No other namespace and no
// key without recent events is in it.
func TestSampleIsUniform(t *testing.T) {
	const all, most = 5000, 500
	var merged []twotier.KeyCount
	for node := range 2 {
		clk := &clock{now: t0 - 3_600_000}
		c := open(t, syncer.Options{Now: clk.Now, Store: embedded.New(embedded.Options{})})
		add(t, c, "old", 7, 0)
		clk.set(t0)
		do(t, c, twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{NS: []byte("other"),
			Key: []byte("other"), N: 9}}})
		for i := node; i < all; i += 2 {
			add(t, c, fmt.Sprint("user:", i), int64(1+i), 0)
		}
		sample, total, err := c.SampleOf(t.Context(), "default", most, 60_000)
		if err != nil || total != all/2 || len(sample) != most {
			t.Fatalf("%d of %d, %v", len(sample), total, err)
		}
		again, _, _ := c.SampleOf(t.Context(), "default", most, 60_000)
		if !slices.Equal(sample, again) {
			t.Error("a second sample differs")
		}
		merged = append(merged, sample...)
	}
	slices.SortFunc(merged, func(a, b twotier.KeyCount) int {
		return cmp.Compare(b.Count, a.Count)
	})
	var tenths [10]int
	for _, k := range merged[:most] {
		var i int
		if _, err := fmt.Sscanf(k.Key, "user:%d", &i); err != nil || k.NS != "default" {
			t.Fatalf("%+v is in the sample", k)
		}
		tenths[i*10/all]++
	}
	for i, n := range tenths {
		if n < most/10-30 || n > most/10+30 {
			t.Errorf("tenth %d has %d of %d keys: %v", i, n, most, tenths)
		}
	}
}
