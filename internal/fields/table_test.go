package fields

import (
	"math/bits"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
)

// TestTable checks the rows that constants stand for, that lookups find each, and nothing else.
func TestTable(t *testing.T) {
	if last := bits.Len32(uint32(For)); last != len(table) {
		t.Errorf("%d constants, and %d rows", last, len(table))
	}
	known := map[string]Set{}
	for i, r := range table {
		f := Set(1) << i
		known[r.name] = f
		if Named([]byte(r.name)) != f || r.word != "" && Worded([]byte(r.word)) != f {
			t.Errorf("%s is not found", r.name)
		}
		if isBoolean := r.bit != 0 && r.flag != "" && r.help != ""; isBoolean != (f&Booleans != 0) {
			t.Errorf("%s: a boolean has a flag, its help and a bit; no other field has", r.name)
		}
	}
	for name := range known {
		for i := range len(name) {
			for c := range 256 {
				like := []byte(name)
				like[i] = byte(c)
				for _, text := range [][]byte{like, like[:i], append(like, byte(c))} {
					if got := Named(text); got != known[string(text)] {
						t.Fatalf("%q is taken for %b", text, got)
					}
				}
			}
		}
	}
}

// TestValue finds each boolean in the field of an operation that has its name.
func TestValue(t *testing.T) {
	var op twotier.Op
	for f := range Booleans.All() {
		name := strings.ReplaceAll(f.Name(), "_", "")
		is := reflect.ValueOf(&op).Elem().FieldByNameFunc(func(s string) bool {
			return strings.EqualFold(s, name)
		})
		if !is.IsValid() || is.Addr().Interface() != f.Value(&op) {
			t.Errorf("%s is not the operation's", f.Name())
		}
	}
	if Hold.Value(&op) != nil {
		t.Error("a hold is taken for a boolean")
	}
}

// TestDocumentsNameEveryField looks for fields in the lists of the documents and of the clients in
// other languages. Package httpapi checks its document, and docs/api.md against that.
func TestDocumentsNameEveryField(t *testing.T) {
	name := func(r row) string { return r.name }
	word := func(r row) string { return r.word }
	for _, list := range []struct {
		file, from, to string // the part of the file between these texts
		of             Set
		called         func(row) string
	}{
		{"docs/doors.md", "| `TT.ACQUIRE ", "` |", OptionsOfAcquire, word},
		{"docs/doors.md", "| `TT.ADD ", "` |", OptionsOfAdd, word},
		{"docs/doors.md", "| `TT.COUNT ", "` |", OptionsOfCount, word},
		{"docs/rules.md", "| in a step | |", "\n\n", Steps(), name},
		{"clients/node/twotier.mjs", "// add counts", "add(op)", OfAdd, name},
		{"clients/node/twotier.mjs", "// count returns", "count(op)", OfCount, name},
		{"clients/node/twotier.mjs", "// acquire decides", "acquire(op)", OfAcquire, name},
		{"clients/node/twotier.mjs", "// distinct adds", "distinct(op)", OfBatchDistinct, name},
		{"clients/node/twotier.mjs", "// settle makes", "settle(op)", OfSettle, name},
		{"clients/node/twotier.mjs", "// renew moves", "renew(op)", OfRenew, name},
		{"clients/python/twotier.py", "def add(", "return", OfAdd, name},
		{"clients/python/twotier.py", "def acquire(", "return", OfAcquire, name},
		{"clients/python/twotier.py", "def settle(", "return", OfSettle, name},
	} {
		text := must.Read(t, filepath.Join("..", "..", list.file))
		_, part, found := strings.Cut(text, list.from)
		part, _, ended := strings.Cut(part, list.to)
		if !found || !ended {
			t.Errorf("%s has nothing from %q to %q", list.file, list.from, list.to)
		}
		for f := range list.of.All() {
			called := list.called(f.row())
			if !regexp.MustCompile(`\b` + called + `\b`).MatchString(part) {
				t.Errorf("%s: write %s to what follows %q", list.file, called, list.from)
			}
		}
	}
}
