package rules_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// TestLimitsHavePlaces lists the limits of a document with every spelling of a limit: the digits of
// each maximum stand at its place, unless an alias or another notation puts them elsewhere.
func TestLimitsHavePlaces(t *testing.T) {
	const text = "# é 15/1m\nrules:\n- {name: a, limits: [15/1m, \"50/24h\"]}\n" +
		"- name: b\n  limits: 7/90s # 8\n  distinct: [3/24h]\n" +
		"- name: c\n  limits:\n  - {window: month, zone: Europe/Lisbon, max: 1000}\n" +
		"  - max: '20'\n    window: 1m\n  - {concurrent: 5}\n" +
		"  overrides: [{key: k, limits: [99/1m, 98/24h]}]\n" +
		"- {name: d, limits: &x [12/1m]}\n- {name: e, limits: *x, concurrent: 4}\n"
	raw, err := rules.Limits([]byte(text))
	must.Succeed(t, err)
	var list []struct {
		Rule, Window, At string
		Max              int64
	}
	must.Succeed(t, json.Unmarshal(raw, &list))
	lines := strings.Split(text, "\n")
	var got []string
	for _, l := range list {
		place := strings.Split(l.At, ":")
		line, err := strconv.Atoi(place[1])
		must.Succeed(t, err)
		column, err := strconv.Atoi(place[2])
		must.Succeed(t, err)
		digits := strings.TrimLeft(lines[line-1][column-1:], `"'&x [`)
		if !strings.HasPrefix(digits, strconv.FormatInt(l.Max, 10)) {
			t.Errorf("%+v: at its place stands %q", l, digits)
		}
		got = append(got, l.Rule+" "+strconv.FormatInt(l.Max, 10)+"/"+l.Window)
	}
	want := []string{"a 15/1m", "a 50/24h", "b 7/90s", "c 1000/month@Europe/Lisbon", "c 20/1m",
		"d 12/1m", "e 12/1m"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(list); n > 1 && list[n-1].At != list[n-2].At {
		t.Errorf("an alias has another place: %+v", list[n-2:])
	}
	if none, err := rules.Limits(nil); err != nil || string(none) != "[]" {
		t.Errorf("without rules: %s %v", none, err)
	}
}
