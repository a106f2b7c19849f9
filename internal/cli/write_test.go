package cli_test

import (
	"testing"
)

// TestRefusedAcquire checks the output of refusals: the limits, counted events, bans, and why a
// retry can't help. 0 events are asked about.
func TestRefusedAcquire(t *testing.T) {
	const several = `{"allowed":false,"checks":[{"key":"user:7","allowed":true,"limits":[{"window":"1m","max":15,"count":3,"remaining":12}],"retry_after_ms":0},` +
		`{"key":"ip","allowed":false,"limits":[{"window":"1m","max":1,"count":1,"remaining":0,"refused":true}],"retry_after_ms":12400}],"retry_after_ms":12400,"source":"memory"}`
	const asked = `POST /v1/acquire {"checks":[{"ns":"x","key":"user:7","n":1,"limits":[{"window":"1m","max":15}]},{"ns":"x","key":"ip","n":1,"limits":[{"window":"1m","max":1}]}],"count_denied":true}`
	const never = `{"allowed":false,"limits":[],"checks":[],"retry_after_ms":-1}`
	const always = "refused, and always will be: "
	const together = always + "checks of the same key are more than a limit together ("
	for _, s := range []scenario{
		{"acquire --check user:7:15/1m --check ip:1/1m -n 1 --ns x --count-denied", several, asked,
			`refused, try again in 12.4s (memory)
KEY     WINDOW  LIMIT  COUNT  REMAINING
user:7  1m         15      3         12
ip      1m          1      1          0  refused
`},
		{"acquire --check user:7:15/1m --check ip:1/1m -n 1 --ns x --count-denied --json", several,
			asked, several + "\n"},
		{"acquire a --limit 1/1m -n 2 --charge",
			`{"allowed":false,"limits":[],"retry_after_ms":900,"ts":7,"source":"memory"}`,
			`POST /v1/acquire {"key":"a","n":2,"limits":[{"window":"1m","max":1}],"charge":true}`,
			"refused, try again in 900ms; the events were counted (memory)"},
		{"acquire --check a:1/1m --check b:1/1m --charge", `{"allowed":false,"checks":[` +
			`{"key":"a"},{"key":"b","ts":7}],"retry_after_ms":900,"source":"memory"}`,
			`POST /v1/acquire {"checks":[` +
				`{"key":"a","n":1,"limits":[{"window":"1m","max":1}]},` +
				`{"key":"b","n":1,"limits":[{"window":"1m","max":1}]}],"charge":true}`,
			"refused, try again in 900ms; the events were counted (memory)"},
		{"acquire a --limit 1/1m -n 0",
			`{"allowed":false,"limits":[],"retry_after_ms":900,"source":"memory"}`,
			`POST /v1/acquire {"key":"a","n":0,"limits":[{"window":"1m","max":1}]}`,
			"refused, try again in 900ms (memory)"},
		{"acquire a\tb --rule login", `{"allowed":false,` +
			`"limits":[{"window":"1m","max":3,"count":1,"remaining":2,"rule":"login"}],` +
			`"refused_by":["login/ban","slow/ban"],"bans":[` +
			`{"rule":"login","key":"a\tb","until":1767226200999},` +
			`{"rule":"slow","key":"a","until":1767226260000,"started":true}],` +
			`"retry_after_ms":9000,"source":"memory"}`, "", `refused, try again in 9s (memory)
KEY     WINDOW  LIMIT  COUNT  REMAINING
"a\tb"  1m          3      1          2  login
rule login bans "a\tb" until 2026-01-01T00:10:00Z
rule slow bans a until 2026-01-01T00:11:00Z, from this refusal on
`},
		{"acquire a --limit 5/1m -n 6", never, "", always + "-n is more than a limit ("},
		{"acquire --check a:5/1m --check b:9/1m -n 6", never, "",
			always + "-n is more than a limit ("},
		{"acquire --check a:9/1m --check a:9/1h -n 5", never, "", together},
		{"acquire --check a:9/1m --check a:5/1m -n 5", never, "", together},
	} {
		s.run(t, true)
	}
}

// TestDistinct adds values under limits and rules that refuse them.
func TestDistinct(t *testing.T) {
	for _, s := range []scenario{
		{"distinct a v w --limit 2/24h --window 1h --ns x --ack redis", `{"key":"a","counts":[` +
			`{"window":"24h","max":2,"count":2,"error":0,"bucket_ms":900000},` +
			`{"window":"1h","count":9012,"at_least":8724,"at_most":9300,"error":0.016}],` +
			`"over":true,"source":"memory","degraded":false}`,
			`POST /v1/distinct {"ns":"x","key":"a","values":["v","w"],"window":"1h",` +
				`"ack":"redis","limits":[{"window":"24h","max":2}]}`, `a (memory)
WINDOW  LIMIT  DIFFERENT  ERROR
24h         2          2  exact
1h                  9012  1.6 %
`},
		{"distinct a v --rule devices --rule tight --window 7h", `{"key":"a","counts":[` +
			`{"window":"24h","max":5,"count":5,"error":0,"bucket_ms":900000,"refused":true,` +
			`"rule":"devices"},{"window":"1h","max":2,"count":5,"error":0,"bucket_ms":60000,` +
			`"refused":true,"rule":"tight","shadow":true},` +
			`{"window":"7h","count":5,"error":0,"bucket_ms":900000}],"over":true,` +
			`"refused_by":["devices"],"retry_after_ms":12400,"rules_version":3,` +
			`"source":"memory","degraded":false}`,
			`POST /v1/distinct {"key":"a","values":["v"],"window":"7h",` +
				`"rules":["devices","tight"]}`, `a (memory)
WINDOW  LIMIT  DIFFERENT  ERROR
24h         5          5  exact  devices, refused
1h          2          5  exact  tight, in shadow, refused
7h                     5  exact
refused, try again in 12.4s
`},
		{"distinct a v w --limit 1/24h", `{"key":"a","counts":[{"window":"24h","max":1,"count":0,` +
			`"error":0,"bucket_ms":900000,"refused":true}],"over":true,` +
			`"refused_by":["limits[0]"],"retry_after_ms":-1,"source":"memory","degraded":false}`,
			"", "\nrefused, and always will be: more different values than a limit allows"},
	} {
		s.run(t, true)
	}
}
