package strictyaml_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/strictyaml"
)

// walk reads a document with lists and texts, and formats its content.
func walk(text string) (found string, err error) {
	r := strictyaml.New("f")
	for _, top := range r.Documents([]byte(text)) {
		strictyaml.Mapping{Name: "top", Example: "list: [a]", Normal: strings.ToLower,
			Each: func(key string, at, to *strictyaml.Node) {
				switch key {
				case "list":
					for _, item := range r.List(to, "list") {
						text, ok := r.Text(item, "an item")
						found += fmt.Sprint(text, ok, " ")
					}
				default:
					r.Unknown(at, key, "there is only list")
				}
			}}.Read(r, top)
	}
	return found, r.Err()
}

func TestReader(t *testing.T) {
	for text, want := range map[string]string{
		"":                          " <nil>",
		"# nothing":                 " <nil>",
		"list:":                     " <nil>",
		"LIST: [a, 1]":              "atrue 1true  <nil>",
		"list: [a]\n---\nlist: [b]": "atrue btrue  <nil>",
		"list: &x [a]":              "atrue  <nil>",
		"list: [[a], ~, b]": "false false btrue  f:1:8: an item is not a single value\n" +
			"f:1:13: an item is not a single value",
		"list: a":            " f:1:7: list is not a list",
		"q: a":               ` f:1:1: unknown key "q"; there is only list`,
		"list: []\nList: []": " f:2:1: list is set already in line 1",
		"[]":                 ` f:1:1: top is not made of lines such as "list: [a]"`,
		"a: {b: &c [1, *c]}": " f:1:15: an alias of what it is in itself",
		"&a\nb: *a":          " f:2:4: an alias of what it is in itself",
		"a: *b": " f:1:4: no anchor of that name; " +
			"quote a text that begins with *",
		"{": " f:2:1: did not find expected node content",
	} {
		found, err := walk(text)
		if got := fmt.Sprint(found, " ", err); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestFields reads a mapping with a value of each kind into variables.
func TestFields(t *testing.T) {
	for text, want := range map[string]string{
		"word: on\nflag: true\nn: 9": "on true 9 [] [] <nil>",
		"flag: no":                   `false 0 [] [] f:1:7: flag: "no" is neither true nor false`,
		"word: up":                   `false 0 [] [] f:1:7: a word: "up" is neither on nor off`,
		"word: [on]":                 "false 0 [] [] f:1:7: a word is not a single value",
		"n: 10":                      `false 1 [] [] f:1:4: n: "10" is not a number from 1 to 9`,
		"n: 1\nn: 2":                 "false 1 [] [] f:2:1: n is set already in line 1",
		"texts: a\nlines: [b, c]":    "false 0 [a] [2 2] <nil>",
		"texts: [a, [b]]\nlines: c": "false 0 [a ] [] f:1:12: texts is not a single value\n" +
			"f:2:8: lines is not a list",
		"rest: [a]\nwords: on": `false 0 [] [] f:2:1: unknown key "words"; want word` +
			"\nf:1:7: the rest",
	} {
		r := strictyaml.New("f")
		var word string
		var flag bool
		var n int64
		var texts []string
		var lines []int
		has := strictyaml.Mapping{Name: "top", Example: "n: 1", Valid: "want word",
			Fields: strictyaml.Fields{
				"word":  strictyaml.OneOf(&word, "on", "off").As("a word"),
				"flag":  strictyaml.Truth(&flag),
				"n":     strictyaml.Number(&n, 1, 9),
				"texts": strictyaml.Texts(&texts),
				"lines": strictyaml.Items(&lines,
					func(n *strictyaml.Node) int { return n.Line }),
				"rest": nil,
			}}.Read(r, r.Document([]byte(text)))
		if rest := has["rest"]; rest != nil {
			r.Fail(rest, "the rest")
		}
		found := fmt.Sprintln(word, flag, n, texts, lines, r.Err())
		if got := strings.TrimSpace(found); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestOneDocument(t *testing.T) {
	for text, want := range map[string]string{"": "true <nil>", "a: 1": "false <nil>",
		"a: 1\n--- # another\nb: 2": "true f:2:1: a second document; everything belongs into one"} {
		r := strictyaml.New("f")
		top := r.Document([]byte(text))
		if got := fmt.Sprint(top == nil, " ", r.Err()); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// doubled returns a list in which n aliases of the list before stand for 2ⁿ texts and more.
func doubled(n int) string {
	text := "list: [&a0 a"
	for i := range n {
		text += fmt.Sprintf(", &a%d [*a%d, *a%d]", i+1, i, i)
	}
	return text + "]"
}

func TestAliasesStandForABoundedNumberOfValues(t *testing.T) {
	const refused = "the aliases up to this one stand for more than 100000 values"
	long := "a: &a [" + strings.Repeat("1,", 999) + "1]\nb: [" // a list of 1000 texts
	for _, c := range []struct{ name, text, want string }{
		{"within", doubled(14), "<nil>"},
		{"beyond", doubled(15), "f:1:264: " + refused},
		{"a billion billion", doubled(60), "f:1:264: " + refused},
		{"flat", long + strings.Repeat("*a,", 99) + "]", "<nil>"},
		{"too many of a list", long + strings.Repeat("*a,", 100) + "]", "f:2:302: " + refused},
		{"two documents", doubled(14) + "\n---\n" + doubled(14), "f:3:239: " + refused},
		{"a key", "? &k [a, b]\n: " + strings.Repeat("[*k, ", 9) + strings.Repeat("]", 9), "<nil>"},
		{"none", "list: [" + strings.Repeat(":,", 1<<17) + "]", "<nil>"},
	} {
		r := strictyaml.New("f")
		r.Documents([]byte(c.text))
		if got := fmt.Sprint(r.Err()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestSoManyMistakes(t *testing.T) {
	for n, want := range map[int]string{
		strictyaml.MaxErrors:        "f:1:503: an item is not a single value",
		strictyaml.MaxErrors + 1:    "f: and 1 more",
		strictyaml.MaxErrors + 5000: "f: and 5000 more",
	} {
		_, err := walk("list: [" + strings.Repeat("[a], ", n) + "]")
		lines := strings.Split(fmt.Sprint(err), "\n")
		if got := lines[len(lines)-1]; got != want || len(lines) > strictyaml.MaxErrors+1 {
			t.Errorf("%d mistakes: %d lines, the last %q, want %q", n, len(lines), got, want)
		}
	}
}

func TestLongTextsAreNotQuotedWhole(t *testing.T) {
	_, err := walk("list: []\n" + strings.Repeat("ü", 1<<17) + ": a")
	got := fmt.Sprint(err)
	if len(got) > 600 || !strings.HasPrefix(got, `f:2:1: unknown key "üüü`) ||
		!strings.Contains(got, "ü...ü") || !strings.HasSuffix(got, `üü"; there is only list`) {
		t.Errorf("%d bytes: %.700s", len(got), got)
	}
}

// TestSurrogatesOfJSON: JSON escapes characters beyond 16 bits as two escapes, which YAML does not.
func TestSurrogatesOfJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"list":["\ud83d\ude00!\uD83D\uDE00"]}`:         "😀!😀true  <nil>",
		`{"list":["\\ud83d\\ude00","\u00e9\n"]}`:         `\ud83d\ude00true é` + "\ntrue  <nil>",
		`{"list":["\"\ud83d\ude00\\\ud83d\ude00", "x"]}`: `"😀\😀true xtrue  <nil>`,
		`{"list":["\ud83d\ude00",["a"]]}`:                "😀true false  f:1:25: an item",
		`{"a\ud83d\ude00":1,"b":2}`: ` f:1:2: unknown key "a😀"; there is only list` + "\n" +
			`f:1:20: unknown key "b"`,
		`{"list":["\ud83d"]}`:            " f:1:13: found invalid Unicode",
		`{"list":["\ude00\ud83d"]}`:      " f:1:13: found invalid Unicode",
		`list: ['\ud83d\ude00']`:         `\ud83d\ude00true  <nil>`,
		`list: [\ud83d\ude00, a] # JSON`: `\ud83d\ude00true atrue  <nil>`,
	} {
		found, err := walk(text)
		if got := fmt.Sprint(found, " ", err); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
