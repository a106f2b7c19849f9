package lint_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// TestCalendarWindowsThatImplyOthers: a calendar window begins anew where a sliding one goes on, so
// it implies only itself. A sliding window as long implies it.
func TestCalendarWindowsThatImplyOthers(t *testing.T) {
	for limits, want := range map[string]string{
		"[5/day, 9/day]": "2:33 never-refuses",
		"[5/24h, 9/day]": "2:33 never-refuses",
		"[{window: day, max: 5}, {window: day, max: 5}]": "2:49 never-refuses",
		"[5/24h, 9/day@Europe/Lisbon]":                   "", // it has 25 hours once a year
		"[5/day, 9/24h]":                                 "",
		"[5/day, 9/day@Asia/Shanghai]":                   "",
		"[5/day, 9/day.6]":                               "",
		"[9/day, 5/hour]":                                "",
	} {
		doc, err := rules.Read("f", []byte("rules:\n- {name: quota, limits: "+limits+"}\n"))
		must.Succeed(t, err)
		if got := found(lint.Rules(doc, ladders(t))); got != want {
			t.Errorf("%s: %s, want %s", limits, got, want)
		}
	}
}

func TestWindowsBeyondTheLadderNameTheLevel(t *testing.T) {
	for limits, want := range map[string]string{
		"[5/month@Europe/Lisbon]": "f:2:44: a window of 745h is longer than its namespace covers " +
			"(25h); it needs `1h x 768` in namespace usual",
		"[5/30d]":                        "it needs `1h x 744` in namespace usual",
		"[5/2w]":                         "it needs `1h x 360` in namespace usual",
		"[5/day@Europe/Lisbon, 5/1500m]": "",
	} {
		doc, err := rules.Read("f", []byte("rules:\n- {name: quota, namespace: usual, limits: "+
			limits+"}\n"))
		must.Succeed(t, err)
		err = ladders(t).CheckWindows(doc)
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", limits, err, want)
		}
	}
}
