package layout_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
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
		into = p.AppendStateKey(p.AppendKey(into[:0], 17, key, key), 17)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestFields reads the names of cells, none of which needs more than 15 digits.
func TestFields(t *testing.T) {
	t.Parallel()
	minute := leaparray.Stretch{Start: 29_383_940 * 60_000, Width: 60_000}
	year := 366 * 24 * time.Hour.Milliseconds()
	for want, s := range map[string]leaparray.Stretch{
		"1763000000123":   leaparray.Moment(1_763_000_000_123),
		"-29383940600005": minute,
		"-35260000000502": {Start: 35_260_000_000 * 50, Width: 50},
		"-55316224000001": {Start: 55 * year, Width: year},
		"-600005":         {Start: 0, Width: 60_000},

		"v\x00\x00\x00\x00\x00\x00\x00\x3f": leaparray.ValueAt(63),
		"v\xfe\x01\x02\x03\x04\x05vv":       leaparray.ValueAt(0xfe01_0203_0405_7676),
	} {
		if got := layout.Field(s); got != want {
			t.Errorf("%v is %s, want %s", s, got, want)
		}
	}
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 12))
	for i := range 10_000 {
		width := 50 + dice.Int64N([]int64{1000, 1_000_000, year - 50}[dice.IntN(3)])
		s := leaparray.Stretch{Start: dice.Int64N(1e13/width) * width, Width: width}
		if i%4 == 0 {
			s = leaparray.ValueAt(dice.Uint64())
		}
		list := layout.ParseBuckets([]any{layout.Field(s), "3"}, nil)
		if len(list) != 1 || list[0] != (syncer.Bucket{Stretch: s, N: 3}) ||
			len(layout.Field(s)) > 16 {
			t.Fatalf("%v is %s, which is %v", s, layout.Field(s), list)
		}
	}
	for _, other := range []string{"", "e", "x", "v", "v1234567", "v123456789", "1.5", "-1", "-10", "-12", "-99995", "-90",
		"1000000000000000", "-1000000000000000", "99999999999999999999"} {
		if list := layout.ParseBuckets([]any{other, "1"}, nil); len(list) != 0 {
			t.Errorf("%q is %v", other, list)
		}
	}
	if list := layout.ParseBuckets([]any{"5", "x", "6", "7"}, nil); !slices.Equal(list,
		[]syncer.Bucket{{Stretch: leaparray.Moment(5), N: syncer.NoCount},
			{Stretch: leaparray.Moment(6), N: 7}}) {
		t.Errorf("a value that is no count: %v", list)
	}
}
