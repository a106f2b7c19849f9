package strictyaml_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/strictyaml"
)

// walk reads a document with lists and texts, and writes what it found.
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
					r.Unknown(at, key, []string{"list"}, "there is only list")
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
		"lis: a":             ` f:1:1: unknown key "lis"; did you mean list?`,
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
