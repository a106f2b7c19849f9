package syncer_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestLaddersWiderThanAChunk grows and releases counters of about as many words as a chunk of the
// arena, and of many more.
func TestLaddersWiderThanAChunk(t *testing.T) {
	race.SkipLong(t)
	second, minute, quarter := time.Second, time.Minute, 15*time.Minute
	for _, levels := range [][]leaparray.Level{
		{{Width: second, Count: 4050}}, {{Width: second, Count: 4090}},
		{{Width: second, Count: 4091}}, {{Width: second, Count: 4092}},
		{{Width: second, Count: 4093}}, {{Width: second, Count: 4096}},
		{{Width: second, Count: 3600}, {Width: minute, Count: 1440}},
		{{Width: second, Count: 4096}, {Width: minute, Count: 4096}, {Width: quarter, Count: 4096}},
	} {
		t.Run(fmt.Sprint(levels), func(t *testing.T) { wideLadder(t, levels) })
	}
}

func wideLadder(t *testing.T, levels []leaparray.Level) {
	l, err := leaparray.NewLadder(leaparray.DefaultExact, levels...)
	if err != nil {
		t.Fatal(err)
	}
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, FlushInterval: time.Hour,
		Placement:  twotier.Placement{Partitions: 1},
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {Ladder: l}}})
	const keys, smalls = 8, 30
	want := map[string]int64{}
	inc := func(key string, n, ts int64) {
		add(t, c, key, n, ts)
		want[key] += n
	}
	for range 3 { // counted, flushed, and counted again where the flushed block was
		for i := range keys {
			inc(fmt.Sprint("k", i), 1<<40, 0) // too much for a sparse bucket
			for j := range smalls {
				key := fmt.Sprint("small", i, ".", j)
				for ago := range int64(30) {
					inc(key, 1, t0-ago*7000)
				}
			}
		}
		flush(t, c)
		for key, n := range want {
			if got := count(t, c, key, l.Span()); got != n {
				t.Fatalf("%s counts %d, want %d", key, got, n)
			}
		}
	}
}
