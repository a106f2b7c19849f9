package cli_test

import (
	"errors"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/cli"
)

// explainedKey is an explanation with every kind of limit.
const explainedKey = `{"key":"bob","ns":"x","at":1767225601000,"node":"n1","owner":"n2",
"source":"owner","rules_version":7,"ban":{"rule":"login","until":1767225691000},"rules":[
{"rule":"login","state":"on","passes":false,"passes_at":1767225612840,"windows":[
 {"window":"1m","limit":15,"count":15,"min":15,"max":15,"remaining":0,"bucket_ms":1000,"buckets":[
  {"start":1767225600000,"width_ms":1000,"count":9},
  {"start":1767225570000,"width_ms":1000,"count":6}]},
 {"window":"24h","limit":50,"count":20,"min":20,"max":20,"remaining":30,"bucket_ms":1000,"buckets":[
  {"start":1767225600000,"width_ms":900000,"count":20}]}]},
{"rule":"devices","state":"on","passes":false,"distinct":[
 {"window":"24h","limit":3,"count":3,"error":0,"remaining":0,"passes":false}]},
{"rule":"send","state":"on","passes":false,"passes_at":1767225612840,"windows":[
 {"window":"10s","limit":15,"count":15,"min":15,"max":15,"remaining":0,"bucket_ms":1000},
 {"window":"1m","limit":16,"count":15,"min":15,"max":15,"remaining":1,"bucket_ms":1000},
 {"window":"24h","limit":50,"count":50,"min":50,"max":50,"remaining":0,"bucket_ms":1000}]},
{"rule":"calls","state":"on","passes":true,"concurrent":{"limit":2,"count":1,"remaining":1}},
{"rule":"idle","state":"shadow","passes":true,"would_refuse":true,"unasked":true,"windows":[
 {"window":"1m","limit":9,"count":15,"min":15,"max":15,"remaining":0,"bucket_ms":1000}]},
{"rule":"tight","state":"shadow","passes":true,"would_refuse":true,"windows":[
 {"window":"1m","limit":9,"count":15,"min":15,"max":15,"remaining":0,"bucket_ms":1000}]},
{"rule":"strict","state":"on","passes":false,"passes_at":1767225691000,"banned_until":1767225691000,
 "windows":[
 {"window":"1m","limit":9,"count":2,"min":2,"max":2,"remaining":7,"bucket_ms":1000}]},
{"rule":"broken","state":"on","passes":false,"error":"window: too long"},
{"rule":"","state":"on","passes":false,"never":true,"windows":[
 {"window":"10s","limit":0,"count":0,"min":0,"max":0,"remaining":0,"bucket_ms":1}]}],
"holds":[{"open":2,"next_end_ms":5000}],"refusals":[
{"id":"n1.b","at":1767225600000,"times":2,"node":"n1","door":"http","rule":"login","reason":"ban"},
{"id":"n1.a","at":1767225591000,"times":781,"node":"n1","door":"http","rule":"","reason":"limit",
 "window":"10s","count":0,"limit":5,"n":30},
{"id":"n2.c","at":1767225590000,"times":1,"node":"n2","door":"resp","rule":"devices",
 "reason":"distinct","window":"24h","count":3,"limit":3},
{"id":"n2.d","at":1767225589000,"times":1,"node":"n2","door":"http","rule":"calls",
 "reason":"concurrent","count":2,"limit":2},
{"id":"n2.e","at":1767225588000,"times":1,"node":"n2","door":"http","rule":"","reason":"cold"}]}`

// explainedText is how it is printed.
const explainedText = `bob in namespace x, rules version 7, decided by n2 (owner)
banned by login for another 1m30s
open: 2 holds
RULE       WINDOW        COUNT  LIMIT  LEFT
login      1m               15     15     0  refuses, passes in 11.84s
login      24h              20     50    30
devices    24h distinct      3      3     0  refuses
send       10s              15     15     0  refuses
send       1m               15     16     1
send       24h              50     50     0  refuses, passes in 11.84s
calls      concurrent        1      2     1  passes
idle       1m               15      9     0  would refuse, in shadow; no request asked for it in 24h
tight      1m               15      9     0  would refuse, in shadow
strict     1m                2      9     7  banned for another 1m30s
broken                                       window: too long
(request)  10s               0      0     0  refuses, always
LARGEST   AT                    EVENTS
1s of 1m  2026-01-01T00:00:00Z       9
1s of 1m  2025-12-31T23:59:30Z       6
REFUSAL  AGO  RULE       CAUSE                           TIMES
n1.b     1s   login      ban                                 2
n1.a     10s  (request)  0 of 5 in 10s, 30 asked           781
n2.c     11s  devices    3 of 3 different values in 24h      1
n2.d     12s  calls      2 of 2 holds are open               1
n2.e     13s  (request)  its counts could not be read        1
`

// TestExplain prints explanations of a key and of a refusal.
func TestExplain(t *testing.T) {
	for _, test := range []struct{ args, answer, asked, want string }{
		{"explain bob --ns x --rule login", explainedKey,
			"GET /v1/explain?key=bob&ns=x&rule=login", explainedText},
		{"explain bob --json", `{"key":"bob"}`, "GET /v1/explain?key=bob", `{"key":"bob"}` + "\n"},
		{"explain --id n1.a", `{"key":"bob","ns":"default","at":20000,"node":"n1",
			"source":"redis","rules_version":0,"refusal":{"id":"n1.a","at":10000,"times":3,
			"node":"n1","door":"http","rule":"","reason":"limit","window":"1m","count":3,
			"limit":3,"n":1},"rules":[],"holds":[],"refusals":[]}`, "GET /v1/explain?id=n1.a",
			"bob in namespace default, rules version 0, decided by Redis (redis)\n" +
				"refused 10s ago by (request): 3 of 3 in 1m, 3 times within a minute " +
				"(http, node n1)\n"},
		{"explain ann", `{"key":"ann","ns":"default","at":20000,"node":"n1","source":"redis",
			"rules_version":0,"rules":[],"holds":[],"refusals":[]}`, "GET /v1/explain?key=ann",
			"ann in namespace default, rules version 0, decided by Redis (redis)\n" +
				"no rule in namespace default judges it, and no recent refusal of it is known " +
				"there; --ns names another namespace\n"},
	} {
		s := &server{answer: test.answer}
		got, err := s.exec(t, strings.Split(test.args, " ")...)
		if err != nil || got != test.want || s.asked != test.asked {
			t.Errorf("%s asks %s, prints\n%s%v, want\n%s", test.args, s.asked, got, err, test.want)
		}
	}
}

// TestWrongExplain covers arguments that make no sense together.
func TestWrongExplain(t *testing.T) {
	for args, want := range map[string]string{
		"explain":                  "the KEY is missing",
		"explain a b":              `"b" is one more`,
		"explain a --id n1.a":      "--id is enough",
		"explain --id n1.a --ns x": "--id is enough",
	} {
		_, err := exec(t, nil, strings.Split(args, " ")...)
		if !errors.As(err, new(*cli.UsageError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
