package layout_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// TestNames names the keys of two prefixes, of which one begins like the other. No key of one
// begins like a key of the other, and all keys of a partition have its hash tag.
func TestNames(t *testing.T) {
	t.Parallel()
	names := func(p layout.Prefix) []string {
		return []string{p.MetaKey(), p.RulesKey(), p.DeadlinesKey(10), p.ProbeKey(),
			p.BatchKey("w:1"), p.StateKey(17),
			p.Key(17, nil, []byte("k")), p.Key(17, []byte("sms"), []byte("{k}")),
			p.RecordKey(17, nil, []byte("k")),
			p.WriterKey(17, "w"), p.FormatChange(&syncer.Round{Partition: 17, Writer: "w"})}
	}
	for i, want := range []string{"tt:meta", "tt:rules", "tt:due:10", "tt:{p0}!probe", "tt:!d:w:1", "tt:{p17}!s",
		"tt:{p17}:default:k", "tt:{p17}:sms:{k}", "tt:{p17}!r:default:k",
		"tt:{p17}!w:w"} {
		if got := names("tt")[i]; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, p := range []layout.Prefix{"t", "tt", "ttt", "tt.meta", "tt-", "TT"} {
		for _, name := range names(p) {
			name = name[strings.LastIndexByte(name, ' ')+1:] // a change ends with its writer
			for _, other := range []layout.Prefix{"t", "tt", "ttt", "tt.meta", "tt-", "TT"} {
				if strings.HasPrefix(name, other.Start()) != (p == other) {
					t.Errorf("%s begins with %s", name, other.Start())
				}
			}
		}
	}
}

// TestParsePrefix accepts the letters that neither end a prefix nor mean anything in a pattern or a
// hash tag.
func TestParsePrefix(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"t", "tt", "A-Z_0.9", strings.Repeat("x", 32)} {
		if p, err := layout.ParsePrefix(text); string(p) != text || err != nil {
			t.Errorf("%q is %q, %v", text, p, err)
		}
	}
	for _, text := range []string{"", ":", "tt:", "tt:meta", "{", "a}", "a*", "a?", "[a]", `\`,
		"a b", "a\n", "é", strings.Repeat("x", 33)} {
		if p, err := layout.ParsePrefix(text); err == nil {
			t.Errorf("%q is %q", text, p)
		}
	}
}

// TestNamesAllocateNothing appends the name of a key to memory that has room for it.
func TestNamesAllocateNothing(t *testing.T) {
	p, key, into := layout.Prefix("staging"), []byte("k"), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		into = p.AppendKey(into[:0], 17, key, key)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestPayloadsAreShort has no payload of pages that are too many or too long for the lengths in it.
func TestPayloadsAreShort(t *testing.T) {
	t.Parallel()
	var p layout.Payload
	for _, tc := range []struct {
		name, value int
		ok          bool
	}{{6, 10, true}, {6, 46, true}, {6, 47, false}, {6, 64, false}, {64, 1, false}} {
		p.Reset()
		p.Add([]byte(strings.Repeat("n", tc.name)), []byte(strings.Repeat("v", tc.value)))
		if text, ok := p.Text(); ok != tc.ok || ok && len(text) != 2+6+tc.name+tc.value+4+1+2+8 {
			t.Errorf("%+v: %q, %v", tc, text, ok)
		}
	}
	p.Reset()
	if _, ok := p.Text(); ok {
		t.Error("without pages there is a payload")
	}
}

// TestPayloadsMakeHashes makes keys of one field and of several by their payloads, on a server that
// trusts payloads and on one that checks every byte. Redis has them as if each field had been set.
func TestPayloadsMakeHashes(t *testing.T) {
	t.Parallel()
	for _, sanitize := range []string{"no", "yes"} {
		srv := redistest.Start(t, redistest.Config("sanitize-dump-payload "+sanitize))
		client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
		defer client.Close()
		for n := 1; n <= 3; n++ {
			var p layout.Payload
			want := map[string]string{}
			for i := range n {
				name, value := fmt.Sprint("f", i), strings.Repeat("\xff\x00", 46/n/2-4)
				p.Add([]byte(name), []byte(value))
				want[name] = value
			}
			key := fmt.Sprint("k", n)
			text, ok := p.Text()
			if err := client.Restore(t.Context(), key, time.Minute, text).Err(); err != nil || !ok {
				t.Fatal(err, ok)
			}
			got, kind := client.HGetAll(t.Context(), key).Val(),
				client.ObjectEncoding(t.Context(), key).Val()
			if !maps.Equal(got, want) || kind != "listpack" {
				t.Errorf("%q in a %s, want %q", got, kind, want)
			}
		}
	}
}

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
