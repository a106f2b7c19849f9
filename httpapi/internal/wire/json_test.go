package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"twotier.dev/twotier/httpapi/internal/wire"
)

// TestObjectsAndLists reads an object of lists, and what stops in the middle.
func TestObjectsAndLists(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":[1,2],"b":[]}`: "a:1,2,b:", `{"a":[]}` + "\n": "a:", `{}`: "",
		`{"a":[1,2,3]}`:   `a[2]: boom`,
		`{"a":[1,2,4,5]}`: "a: want at most 3 numbers", `{"a":["x"]}`: "a[0]: want a whole number",
		`{"a":1}`: "a: want a list of numbers", `[]`: "want an object, got an array",
		`{"a":[1,]}`: "malformed JSON at byte 8", `{"a":[1]`: "malformed JSON at byte 8",
	} {
		var s wire.Scanner
		s.Reset([]byte(text))
		got := ""
		p := s.ReadObject("an object", func(name []byte) *wire.Problem {
			got += string(name) + ":"
			p := s.ReadList("a list of numbers", 3, "numbers", func(int) *wire.Problem {
				v, p := s.ReadInteger()
				if p == nil && v == 3 {
					p = wire.FieldProblem("", "boom")
				}
				got += string(rune('0'+v)) + ","
				return p
			})
			if p != nil {
				return p.PrefixField(string(name))
			}
			return nil
		})
		if p == nil {
			p = s.ExpectEnd()
		}
		if p != nil {
			got = p.Text()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// FuzzString: encoding/json reads the same string back.
func FuzzString(f *testing.F) {
	f.Add("a\"\\\x00\x1f\u007f\u2028é😀\xff\xe2\x82")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(wire.AppendString(nil, s), &got); err != nil {
			t.Fatal(err)
		}
		encoded, _ := json.Marshal(s)
		var want string
		_ = json.Unmarshal(encoded, &want)
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
