package token_test

import (
	"errors"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/token"
)

func TestFindsWhatWasMade(t *testing.T) {
	text, hash := token.New()
	other, _ := token.New()
	line, err := token.FormatLine("checkout", hash, twotier.RoleCount|twotier.RoleRead,
		"default,login")
	must.Succeed(t, err)
	var s token.Store
	if s.Find([]byte(text)) != nil {
		t.Error("found before anything was loaded")
	}
	must.Succeed(t, s.Load([]byte("# who\n"+line+" # may what\n\n")))
	g := s.Find([]byte(text))
	if g == nil || g.Name() != "checkout" || g.AllNamespaces() {
		t.Fatalf("got %+v", g)
	}
	for _, wrong := range []string{"", other, text + "x", text[:len(text)-1], strings.ToUpper(text),
		hash, strings.TrimPrefix(hash, "sha256:")} {
		if s.Find([]byte(wrong)) != nil {
			t.Errorf("%q passes", wrong)
		}
	}
	if !g.May(twotier.RoleCount) || !g.May(twotier.RoleRead|twotier.RoleAdmin) ||
		g.May(twotier.RoleAdmin) {
		t.Error("the roles are not those of the line")
	}
	for ns, want := range map[string]bool{"": true, "default": true, "login": true, "log": false,
		"login2": false, "*": false} {
		if g.HasNamespace([]byte(ns)) != want {
			t.Errorf("namespace %q: %v", ns, !want)
		}
	}
	if err := s.Load([]byte("nonsense")); err == nil || s.Find([]byte(text)) != g {
		t.Errorf("a file that can't be used changed something: %v", err)
	}
}

func TestAllNamespaces(t *testing.T) {
	for _, namespaces := range []string{"", "*"} {
		text, hash := token.New()
		line, err := token.FormatLine("a", hash, twotier.RoleAdmin, namespaces)
		must.Succeed(t, err)
		set, err := token.Parse([]byte(line))
		must.Succeed(t, err)
		if g := set.Find([]byte(text)); !g.AllNamespaces() ||
			!g.HasNamespace([]byte("x")) || !g.HasNamespace(nil) {
			t.Errorf("namespaces %q: %+v", namespaces, g)
		}
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	_, hash := token.New()
	_, other := token.New()
	for text, want := range map[string]string{
		"":                          "it holds no tokens",
		"# nothing\n":               "it holds no tokens",
		"\na " + hash:               "line 2: 2 fields",
		"a " + hash + " read x y":   "line 1: 5 fields",
		"a secret read":             "line 1: the second field is not sha256:",
		"a sha256:12 read":          "line 1: the second field is not sha256:",
		"a " + hash[:70] + "z read": "line 1: the hash contains characters",
		"a " + hash + " write":      `line 1: "write" is not one of count, read and admin`,
		"a\x1b[2J " + hash +
			" read": "line 1: the name is longer than 64 bytes, or holds what can't be shown",
		"a\xff " + hash + " read": "line 1: the name is longer",
		"a\x00 " + hash + " read": "line 1: the name is longer",
		// U+202E displays the rest of the name from right to left.
		"a\u202eb " + hash + " read":                   "line 1: the name is longer",
		strings.Repeat("a", 65) + " " + hash + " read": "line 1: the name is longer",
		"a " + hash + " read,":                         `line 1: "" is not one of`,
		"a " + hash + " read x,":                       "line 1: namespaces are either * or names",
		"a " + hash + " read x,*":                      "line 1: namespaces are either * or names",
		"a " + hash + " read\nb " + hash + " read": "line 2: the hash is already in another " +
			"line",
		"a " + hash + " read\na " + other + " read": `line 2: "a" is already the name in line 1`,
	} {
		_, err := token.Parse([]byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), hash)) {
			t.Errorf("%q: the error tells it: %v", text, err)
		}
	}
}

// TestFilesOfOtherEditors parses a byte order mark, other line endings and other alphabets.
func TestFilesOfOtherEditors(t *testing.T) {
	text, hash := token.New()
	for _, file := range []string{
		"\ufeffzoë " + hash + " read\n", "zoë " + hash + " read\r\n# Ω\r\n", "zoë\t" + hash +
			"\tread", "\n\n  zoë " + hash + " read # 係",
	} {
		set, err := token.Parse([]byte(file))
		if err != nil {
			t.Errorf("%q: %v", file, err)
			continue
		}
		if g := set.Find([]byte(text)); g == nil || g.Name() != "zoë" || !g.AllNamespaces() {
			t.Errorf("%q: %+v", file, g)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	text, hash := token.New()
	set, err := token.Parse([]byte("a " + hash + " count"))
	must.Succeed(b, err)
	presented := []byte(text)
	b.ReportAllocs()
	for b.Loop() {
		set.Find(presented)
	}
}

// TestCovers compares grants of one name, and of two.
func TestCovers(t *testing.T) {
	grants := func(line string) *twotier.Grant {
		text, hash := token.New()
		name, rest, _ := strings.Cut(line, " ")
		set, err := token.Parse([]byte(name + " " + hash + " " + rest))
		must.Succeed(t, err)
		return set.Find([]byte(text))
	}
	for _, test := range []struct {
		now, then string
		want      bool
	}{
		{"a count", "a count", true},
		{"a count,read", "a count", true},
		{"a count", "a count,read", false},
		{"a count", "b count", false},
		{"a count", "a count x", true},
		{"a count x", "a count", false},
		{"a count x,y", "a count y", true},
		{"a count x", "a count x,y", false},
	} {
		if got := grants(test.now).Covers(grants(test.then)); got != test.want {
			t.Errorf("%q covers %q: %v, want %v", test.now, test.then, got, test.want)
		}
	}
}

// TestTheLastTokenCanBeWithdrawn loads a file without tokens: at first that is an error, and later
// it withdraws all tokens.
func TestTheLastTokenCanBeWithdrawn(t *testing.T) {
	var store token.Store
	text, hash := token.New()
	if err := store.Load([]byte("# none\n")); !errors.Is(err, token.ErrNone) {
		t.Errorf("at first: %v", err)
	}
	must.Succeed(t, store.Load([]byte("a "+hash+" count *\n")))
	if store.Find([]byte(text)) == nil {
		t.Error("the token is unknown")
	}
	if err := store.Load(nil); err != nil || store.Find([]byte(text)) != nil {
		t.Errorf("%v; withdrawn, the token is known", err)
	}
}
