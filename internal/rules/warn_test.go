package rules_test

import (
	"strings"
	"testing"

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
