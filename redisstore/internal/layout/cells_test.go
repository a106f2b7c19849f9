package layout_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// hash is a Hash in Redis.
type hash map[string]string

// write writes the pages of cells, all or those that adds change.
func (h hash) write(t *testing.T, p *layout.Pages, cells, adds []syncer.Bucket) {
	p.Each(cells, adds, func(name, value []byte) {
		switch _, there := h[string(name)]; {
		case len(value) > 64 || len(value) == 0 && !there:
			t.Fatalf("a page has %d bytes", len(value))
		case len(value) == 0:
			delete(h, string(name))
		default:
			h[string(name)] = string(value)
		}
	})
}

func (h hash) content(t *testing.T) layout.Content {
	var flat []any
	for name, value := range h {
		flat = append(flat, name, value)
	}
	return layout.ParseContent(flat, nil)
}

// TestPagesAreWrittenInPart adds cells to a key in random order, each time to the pages that change
// or to the log. The Hash always has the sum, and after a rewrite exactly the pages of its cells.
func TestPagesAreWrittenInPart(t *testing.T) {
	t.Parallel()
	first := seed.First()
	t.Logf("seed %d", first)
	for i := range uint64(200) {
		rnd := rand.New(rand.NewPCG(first, i))
		h, p, want := hash{}, &layout.Pages{}, map[leaparray.Stretch]int64{}
		logged := false
		now := int64(1_780_000_000_000)
		for range 200 {
			now += rnd.Int64N([]int64{2, 1000, 100_000_000}[i%3])
			var adds []syncer.Bucket
			for range 1 + rnd.IntN(3) {
				width := []int64{1, 1, 1000, 60_000}[rnd.IntN(4)]
				at := now - rnd.Int64N(1+rnd.Int64N([]int64{1, 10_000_000}[i%2]))
				s := leaparray.Stretch{Start: at - at%width, Width: width}
				n := 1 + rnd.Int64N([]int64{1, 10, 1 << 40}[rnd.IntN(3)])
				same := func(b syncer.Bucket) bool { return b.Stretch == s }
				if !slices.ContainsFunc(adds, same) {
					adds = append(adds, syncer.Bucket{Stretch: s, N: n})
					want[s] += n
				}
			}
			var cells []syncer.Bucket
			for s, n := range want {
				cells = append(cells, syncer.Bucket{Stretch: s, N: n})
			}
			slices.SortFunc(cells, syncer.Bucket.Compare)
			switch rewrite := rnd.IntN(10) == 0; {
			case rewrite:
				clear(h)
				h.write(t, p, cells, nil)
				logged = false
			case logged || rnd.IntN(10) == 0:
				h[layout.LogField] = string(layout.AppendLog([]byte(h[layout.LogField]), adds))
				logged = true
			default:
				h.write(t, p, cells, adds)
			}
			if got := h.content(t).Buckets; !slices.Equal(got, cells) {
				t.Fatalf("key %d has\n%v, want\n%v", i, got, cells)
			}
			if !logged {
				whole := hash{}
				whole.write(t, p, cells, nil)
				if len(whole) != len(h) {
					t.Fatalf("key %d has %d pages, rewritten %d", i, len(h), len(whole))
				}
			}
		}
	}
}

// TestDamagedFields finds no count in fields that can't be decoded, and skips foreign ones.
func TestDamagedFields(t *testing.T) {
	t.Parallel()
	for _, field := range [][2]string{{"c", "1"}, {"foreign", "1"}, {"v", "x"}, {"17", "1"}} {
		var c layout.Content
		if c.Add(field[0], field[1]) || len(c.Buckets) > 0 {
			t.Errorf("%q counts something", field)
		}
	}
	h, p := hash{}, &layout.Pages{}
	h.write(t, p, []syncer.Bucket{{Stretch: leaparray.Moment(1_780_000_000_000), N: 300}}, nil)
	for name, value := range h {
		for cut := range len(value) - 1 {
			damaged(t, name, value[:cut+1])
		}
		damaged(t, name[:len(name)-1], value)
		damaged(t, name+"\x01", value)
		damaged(t, name, value+"\x80")
	}
	damaged(t, layout.LogField, "\x00\x01\x02")
	damaged(t, layout.LogField, "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02")
	damaged(t, layout.ValueField(7), "no time")
}

func damaged(t *testing.T, name, value string) {
	t.Helper()
	var c layout.Content
	if c.Add(name, value); len(c.Buckets) == 0 || c.Buckets[len(c.Buckets)-1].N != syncer.NoCount {
		t.Errorf("%q: %q has %v", name, value, c.Buckets)
	}
}

// BenchmarkPages encodes the page that changes when a key of 64 events has another one.
func BenchmarkPages(b *testing.B) {
	var cells []syncer.Bucket
	for i := range int64(64) {
		at := leaparray.Moment(1_780_000_000_000 + 700*i)
		cells = append(cells, syncer.Bucket{Stretch: at, N: 1})
	}
	var p layout.Pages
	n := 0
	for b.Loop() {
		p.Each(cells, cells[63:], func(_, value []byte) { n += len(value) })
	}
}

// TestNamesOfFields spells the names of a page and of a value, which others rely on.
func TestNamesOfFields(t *testing.T) {
	t.Parallel()
	h, p := hash{}, &layout.Pages{}
	minute := leaparray.Stretch{Start: 29_383_940 * 60_000, Width: 60_000}
	h.write(t, p, []syncer.Bucket{{Stretch: leaparray.Moment(1_763_000_000_123), N: 2},
		{Stretch: minute, N: -1}}, nil)
	for name, value := range map[string]string{
		"c\x01\xfa\xb4\x06\x00":             "\xfb\xbc\xf4\a\x04",
		"c\xe0\xd4\x03\x01\x00":             "\x84\xba\x81\x06\x01",
		"v\x00\x00\x00\x00\x00\x00\x00\x3f": "",
	} {
		if name[0] == 'v' {
			if got := layout.ValueField(63); got != name {
				t.Errorf("the value is %q, want %q", got, name)
			}
		} else if got, found := h[name]; !found || got != value {
			t.Errorf("%q has %q, want %q; there are %q", name, got, value, h)
		}
	}
}
