package main

import (
	"path/filepath"
	"strings"
	"testing"

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
