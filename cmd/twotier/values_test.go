package main

import (
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestExactValues adds values to a key of a namespace that counts four exactly, in both modes. The
// count of five is an estimate, and exact in another namespace.
func TestExactValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "twotier.yaml")
	must.Write(t, file, "namespaces: {few: {exact-values: 4}}\n")
	for _, mode := range []string{"two-tier", "redis"} {
		node := startServe(t, t.Context(), "--redis", redistest.Start(t).URL(), "--mode", mode,
			"--config", file)
		for _, step := range []struct {
			ns, values string
			exact      bool
		}{
			{"few", `"a","b","c","d"`, true}, {"few", `"e"`, false},
			{"default", `"a","b","c","d","e"`, true},
		} {
			answer := fetch(t, "POST", node.url+"/v1/distinct", `{"ns":"`+step.ns+
				`","key":"k","values":[`+step.values+`],"window":"1h"}`)
			if !strings.Contains(answer, `"error":`) ||
				strings.Contains(answer, `"error":0}`) != step.exact {
				t.Errorf("%s, %s after %s: %s", mode, step.ns, step.values, answer)
			}
		}
	}
}
