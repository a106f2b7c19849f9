package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestBacktestFromAShell tries rules on the counts of three nodes.
func TestBacktestFromAShell(t *testing.T) {
	const token = "the token of this test"
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL(), "--admin-token", token)
	s := shell{t, nodes[0], []string{"TWOTIER_ADMIN_TOKEN=" + token},
		filepath.Join(t.TempDir(), "r.yaml")}
	for i, key := range []string{"alice", "bob", "carol"} {
		if code, _, errs := exec(t, nil, "add", key, "-n", []string{"3", "5", "1"}[i], "--server",
			nodes[i].url); code != exitOK {
			t.Fatal(errs)
		}
	}
	s.write("rules:\n- name: login\n  limits: [4/24h]\n" +
		"  overrides: [{key: alice, limits: [1/24h]}]\n" +
		"- {name: sms, namespace: sms, limits: [1/1h], state: shadow}\n")
	const found = `looked at 3 keys: 3 of default, 0 of sms
refused requests are not among the events, except with count_denied
RULE   STATE   KEYS  REFUSING  EVENTS  REFUSED
login  on         3         2       9        3
sms    shadow     0         0       0        0

RULE   KEY    LIMIT  COUNT  PEAK  EVENTS  REFUSED
login  alice  1/24h      3     3       3        2  refuses now
login  bob    4/24h      5     5       5        1  refuses now
`
	for _, n := range nodes {
		s.node = n
		if out := s.rules(exitOK, "", "backtest", s.file); out != found {
			t.Errorf("printed\n%s, want\n%s", out, found)
		}
	}
	s.rules(exitOK, "version 0\n", "show") // nothing has changed
	s.rules(exitOK, `"rule":"login","ns":"default","state":"on","looked_at":3,"refusing":2,`,
		"backtest", s.file, "--json")
	s.rules(exitFailed, "want a document with at least one rule", "backtest")
	s.rules(exitOK, "version 1 is in force", "apply", s.file)
	s.rules(exitOK, "login  bob    4/24h", "backtest") // the rules in force
	if out := s.rules(exitOK, "looked at 1 key: 1 of default\n", "backtest", "--rule", "login",
		"--top", "1"); strings.Contains(out, "sms") || !strings.Contains(out, "bob") {
		t.Errorf("of one rule and one key:\n%s", out)
	}
	s.write("rules:\n- {name: login, limits: [4/24h], distinct: 5/24h}\n" +
		"- {name: devices, namespace: sms, distinct: [1/1h]}\n")
	const without = `looked at 3 keys: 3 of default
distinct limits are not replayed: devices, login
refused requests are not among the events, except with count_denied
RULE     STATE  KEYS  REFUSING  EVENTS  REFUSED
devices  on        0         0       0        0
login    on        3         1       9        1
`
	if out := s.rules(exitOK, "", "backtest", s.file); !strings.HasPrefix(out, without) {
		t.Errorf("printed\n%s, want\n%s", out, without)
	}
	s.write("rules:\n- {name: devices, distinct: 1/1h}\n")
	s.rules(exitOK, "looked at 0 keys\ndistinct limits are not replayed: devices\n", "backtest",
		s.file)
	s.rules(exitFailed, `rules[1]: there is no rule "x"`, "backtest", "--rule", "login,x")
	s.write("rules:\n- {name: login, limits: [4/24h, 5]}\n")
	s.rules(exitFailed, `rules:2:33: limit: "5" is not MAX/WINDOW`, "backtest", s.file)
	for _, usage := range []string{"backtest a b", "backtest r --rule login", "backtest --top 0"} {
		s.rules(exitUsage, "usage: twotier rules", strings.Fields(usage)...)
	}
}

// addTraffic counts 1 to 5 events for each of 2,000 keys, and 500 for the first two, through all
// nodes.
func addTraffic(t *testing.T, nodes []*served) (events int) {
	t.Helper()
	for i, n := range nodes {
		var ops []string
		for k := i; k < 2000; k += len(nodes) {
			times := 1 + k%5
			if k < 2 {
				times = 500
			}
			events += times
			ops = append(ops, fmt.Sprintf(`{"op":"add","key":"user:%d","n":%d}`, k, times))
		}
		addAll(t, n, ops)
	}
	return events
}

// addAll sends adds in a batch, and again the ones that a busy node refuses.
func addAll(t *testing.T, n *served, ops []string) {
	t.Helper()
	eventually(t, "all adds are counted", patience, func() bool {
		got := fetch(t, "POST", n.url+"/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)
		var answer struct {
			Results []struct{ Error *struct{ Status int } }
		}
		must.Succeed(t, json.Unmarshal([]byte(got), &answer))
		var refused []string
		for i, r := range answer.Results {
			switch {
			case r.Error == nil:
			case r.Error.Status == http.StatusTooManyRequests:
				refused = append(refused, ops[i])
			default:
				t.Fatalf("%s: status %d", ops[i], r.Error.Status)
			}
		}
		ops = refused
		return len(ops) == 0
	})
}

// TestSuggestFromAShell asks three nodes for limits: each examines the keys of all of them, and
// prints rules that can be applied.
func TestSuggestFromAShell(t *testing.T) {
	const token = "the token of this test"
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL(), "--admin-token", token)
	s := shell{t, nodes[0], []string{"TWOTIER_ADMIN_TOKEN=" + token},
		filepath.Join(t.TempDir(), "r.yaml")}
	const restarted = "# keys without a request since the nodes started are not included\n"
	const nothing = "# no key of default in memory had events in the last 24 hours\n" + restarted +
		"# There is no history to suggest limits from. Requests that name rules in state off or " +
		"shadow\n# count without being refused, and so does twotier add. "
	if out := s.rules(exitOK, "", "suggest"); !strings.HasPrefix(out, nothing) {
		t.Errorf("printed\n%s", out)
	}
	events := addTraffic(t, nodes)
	want := fmt.Sprintf("# 2000 keys of default in memory had events in the last 24 hours: all "+
		"were examined\n"+restarted+`# the busiest window of each key:
# WINDOW  P50  P99  P99.9  MAX  LIMIT  REFUSED
# 1h        3    5      5  500      6      988
# 24h       3    5      5  500      6      988
# LIMIT is one above P99.9, rounded up to two digits: at least 99.9%% of the keys never reached it.
# These limits would have refused 988 of %d events, of 2 of the keys.
# 3-5 is at least 3 and at most 5: the buckets of older events don't have their times; LIMIT is
# above the 5.
rules:
  - {name: suggested, limits: [6/1h, 6/24h], state: shadow}
`, events)
	for _, n := range nodes {
		s.node = n
		if out := s.rules(exitOK, "", "suggest", "--windows", "1h,24h"); out != want {
			t.Errorf("printed\n%s, want\n%s", out, want)
		}
	}
	s.rules(exitOK, "version 0\n", "show") // nothing has changed
	s.write(want)
	s.rules(exitOK, "version 1 is in force", "apply", s.file)
	s.rules(exitOK, "limits: [510/1h, 510/24h] # of the rule suggested\n", "suggest", "--rule",
		"suggested", "--percentile", "100")
	s.rules(exitOK, `"percentile":50,"unread":0,"rules":[{"rule":"suggested","ns":"default",`+
		`"keys":2000,"examined":2000,`, "suggest", "--percentile", "50", "--json")
	fetch(t, "POST", nodes[1].url+"/v1/add", `{"ns":"sms","key":"k"}`)
	s.rules(exitOK, "  - {name: suggested, namespace: sms, limits: [2/1m, 2/24h], state: shadow}",
		"suggest", "--ns", "sms")
}

// TestSuggestRefuses prints usage, and passes on what servers refuse.
func TestSuggestRefuses(t *testing.T) {
	s := shell{t, startServe(t, t.Context(), "--gossip", ""), nil, ""}
	for _, usage := range []string{"suggest FILE", "suggest --percentile 0",
		"suggest --percentile 101", "suggest --rule r --ns n", "suggest --rule r --windows 1m"} {
		s.rules(exitUsage, "usage: twotier rules", strings.Fields(usage)...)
	}
	s.rules(exitFailed, `rules[0]: there is no rule "x"`, "suggest", "--rule", "x")
	s.rules(exitFailed, "48h", "suggest", "--windows", "48h")
}
