package layout_test

import (
	"strings"
	"testing"

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
