package syncer_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

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
