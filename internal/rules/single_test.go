package rules_test

import (
	"fmt"
	"testing"
)

// TestASingleLimitNeedsNoList reads limits without the brackets of a list.
func TestASingleLimitNeedsNoList(t *testing.T) {
	doc := read(t, `rules:
- {name: text, limits: 3/1m}
- {name: fields, limits: {max: 3, window: 1m}}
- {name: open, limits: {concurrent: 2}}
- {name: other, limits: 3/1m, overrides: [{key: a, limits: 9/1h}]}
- {name: alias, limits: &two 2/1m}
- {name: same, limits: *two}
`)
	for name, want := range map[string]string{
		"text": "[{60000 3 1m <nil>}] 0", "fields": "[{60000 3 1m <nil>}] 0", "open": "[] 2",
		"other": "[{3600000 9 1h <nil>}] 0", "same": "[{60000 2 1m <nil>}] 0",
	} {
		r := doc.Rules.Find([]byte(name))
		if got := fmt.Sprint(r.For([]byte("a")), r.Concurrent); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestLimitsHaveTheirPlace finds the place of each window, also next to a limit without one.
func TestLimitsHaveTheirPlace(t *testing.T) {
	doc := read(t, `rules:
- {name: a, limits: [1/1m, {concurrent: 2}, 2/1h]}
- {name: b, limits: 3/1m, distinct: [4/1h]}
`)
	var got []string
	for _, l := range doc.Source().Limits {
		got = append(got, fmt.Sprintf("%d %s", l.Max, l.At))
	}
	const want = "[1 r.yaml:2:22 2 r.yaml:2:45 3 r.yaml:3:21 4 r.yaml:3:38]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
