package rules_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/rules"
)

// FuzzRead checks that a file is either read, or refused with the place of every mistake.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"", "---\n---\n", "rules: [{name: a, limits: [1/1s], state: off}]",
		"domain: a\ndescriptors: &d [{key: x, value: y*, share_threshold: true, descriptors: *d}]",
		"domain: a\ndescriptors: [{key: x, rate_limit: {unit: day, replaces: [{name: n}]}}]",
		limited("unit: month, unit_multiplier: 4294967295"),
		"? [a]\n: b", "rules: &a [*a]", "- - -", "!!binary x: y", "<<: {rules: []}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc, err := rules.Read("f", []byte(text))
		if (doc == nil) != (err != nil) {
			t.Fatalf("%q: %v, %v", text, doc, err)
		}
		if err == nil {
			_ = doc.EachWindow(func(_ string, ms int64) error {
				if ms < 1 {
					t.Errorf("%q: a window of %d ms", text, ms)
				}
				return nil
			})
			return
		}
		if !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%q: a mistake without its file: %v", text, err)
		}
	})
}
