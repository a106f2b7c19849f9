package fields

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

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
