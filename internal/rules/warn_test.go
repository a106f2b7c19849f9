package rules_test

import (
	"reflect"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rules"
)

// TestWarn reads warning levels, and refuses texts that are no whole percentage of a limit.
func TestWarn(t *testing.T) {
	doc := read(t, "rules:\n- {name: a, limits: [9/1m], warn: 80%}\n"+
		"- {name: b, distinct: 5/24h, warn: 1%, state: shadow}\n"+
		"- {name: c, limits: [9/1m], warn: 100%}\n- {name: d, limits: [9/1m]}\n")
	for name, want := range map[string]int64{"a": 80, "b": 1, "c": 100, "d": 0} {
		if got := doc.Rules.Find([]byte(name)).Warn; got != want {
			t.Errorf("%s warns from %d%%, want %d%%", name, got, want)
		}
	}
	for _, text := range []string{"80", "0%", "101%", "-5%", "12.5%", "+8%", "8 %", "''",
		"80%%"} {
		_, err := rules.Read("r.yaml",
			[]byte("rules:\n- {name: a, limits: [9/1m], warn: "+text+"}\n"))
		const want = " is not a whole percentage from 1% to 100%, such as 80%"
		if err == nil || !strings.HasPrefix(err.Error(), "r.yaml:2:35: warn: ") ||
			!strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err := rules.Read("r.yaml", []byte("rules: [{name: a, limits: [9/1m], warn: [8%]}]"))
	if err == nil || !strings.HasPrefix(err.Error(), "r.yaml:1:41: warn") {
		t.Errorf("a list: %v", err)
	}
}

// TestWarnOfDescriptors reads warning levels beside limits of descriptors, and refuses fields about
// a limit where there is none.
func TestWarnOfDescriptors(t *testing.T) {
	doc := read(t, "domain: d\ndescriptors:\n"+
		"- {key: a, warn: 80%, rate_limit: {name: n, unit: day, requests_per_unit: 9}}\n"+
		"- {key: b, warn: 1%, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 9}}\n"+
		"- {key: c, rate_limit: {unit: day, requests_per_unit: 9}}\n")
	for descriptor, want := range map[string]twotier.Rule{
		"a=1": {Name: "n", Namespace: "d", Warn: 80},
		"b=1": {Namespace: "d", Warn: 1, State: twotier.RuleShadow},
		"c=1": {Namespace: "d"},
	} {
		limit, _ := doc.Domain("d").Find(entries(descriptor))
		if got := limit.Rule("d"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", descriptor, got, want)
		}
	}
	const none = "the descriptor has no limit; want it beside a rate_limit with requests_per_unit"
	for descriptor, want := range map[string]string{
		"{key: a, warn: 80, rate_limit: {unit: day}}": `warn: "80" is not a whole percentage ` +
			"from 1% to 100%, such as 80%",
		"{key: a, warn: 80%}":                                     "warn: " + none,
		"{key: a, warn: 80%, rate_limit: {unlimited: true}}":      "warn: " + none,
		"{key: a, warn: 80%, descriptors: [{key: b}]}":            "warn: " + none,
		"{key: a, charge: always}":                                "charge: " + none,
		"{key: a, charge: always, rate_limit: {unlimited: true}}": "charge: " + none,
	} {
		_, err := rules.Read("r.yaml", []byte("domain: d\ndescriptors:\n- "+descriptor+"\n"))
		at := "r.yaml:3:18: "
		if strings.HasPrefix(want, "charge") {
			at = "r.yaml:3:20: "
		}
		if err == nil || err.Error() != at+want {
			t.Errorf("%s: %v, want %s", descriptor, err, at+want)
		}
	}
}
