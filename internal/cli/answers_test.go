package cli_test

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/testing/must"
)

func TestJoinPoints(t *testing.T) {
	tests := []struct {
		name   string
		points [][2]int64
		most   int
		want   []int64
		width  int64
	}{
		{"one", [][2]int64{{70, 5}}, 10, []int64{5}, 10},
		{"all fit", [][2]int64{{0, 1}, {10, 2}, {20, 3}}, 3, []int64{1, 2, 3}, 10},
		{"gaps are zero", [][2]int64{{0, 1}, {30, 3}}, 10, []int64{1, 0, 0, 3}, 10},
		{"joined from the end", [][2]int64{{0, 1}, {10, 2}, {20, 3}}, 2, []int64{1, 5}, 20},
		{"far apart", [][2]int64{{0, 1}, {1 << 60, 3}}, 2, []int64{1, 3}, 10 * (1<<60/10/2 + 1)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, width := cli.JoinPoints(test.points, 10, test.most)
			if !slices.Equal(got, test.want) || width != test.width {
				t.Errorf("got %v of %d, want %v of %d", got, width, test.want, test.width)
			}
		})
	}
}

func TestPlotShowsTheSmallestCount(t *testing.T) {
	s := &server{answer: `{"key":"a","bucket_ms":1000,"points":[[0,1],[1000,0],[2000,4],[3000,8000],[4000,1]]}`}
	out, err := s.exec(t, "series", "a")
	must.Succeed(t, err)
	lines := strings.Split(out, "\n")
	if want := "         ┤▁ ▁█▁"; lines[8] != want {
		t.Errorf("lowest row %q, want %q of\n%s", lines[8], want, out)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("colours without a terminal: %q", out)
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB",
		1 << 30: "1 GiB", 1 << 52: "4096 TiB"} {
		if got := cli.FormatSize(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

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
	for _, s := range []scenario{
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
		s.run(t, false)
	}
}

const (
	twoMembers = `{"mode":"two-tier","ring_version":3,"partitions":103,"members":[` +
		`{"id":"a","address":"h:1","state":"alive","self":true,"partitions":51,"share":0.4951,"mode":"two-tier","status":{"version":"0.1.0","mode":"two-tier","ring_version":3,"held":48,"incoming":3,"outgoing":0,"moving":0,"pending_buckets":7,"keys":12,"redis_up":true,"ops_total":1000,"forwarded_total":501}},` +
		`{"id":"b","address":"h:2","state":"leaving","self":false,"partitions":52,"share":0.5049,"mode":"two-tier","status":{"version":"0.2.0","mode":"redis","ring_version":4,"held":55,"incoming":1,"outgoing":2,"moving":1,"pending_buckets":0,"keys":0,"redis_up":true,"ops_total":0,"forwarded_total":0}},` +
		`{"id":"c","address":"h:3","state":"suspect","self":false,"partitions":0,"share":0}],`
	store = `"redis":{"kind":"redis","address":"h:6379","up":true,"rtt_us":130,"round_trips":9},"clock_offset_ms":-2,"clock_skew_ms":0,"pending_buckets":7,"keys":12,"memory_bytes":1572864,"max_memory_bytes":1073741824}`
	shown = `mode     two-tier
store    redis h:6379, up, round trip 130µs
pending  7 buckets not in the store yet on this node
memory   12 keys, 1.5 MiB of 1 GiB on this node
clock    -2 ms to the store's, 0 ms of it not followed yet
ring     version 3, 103 partitions, 3 members

MEMBER  ADDRESS  STATE    MODE      OWNS  SHARE  HAS  MOVING  PENDING  KEYS  FORWARDED
a       h:1      alive    two-tier    51  49.5%   48      +3        7    12      50.1%  (asked)
b       h:2      leaving  redis       52  50.5%   55   +1 -3        0     0       0.0%  (sees other members, version 0.2.0)
c       h:3      suspect  two-tier     0   0.0%    ?       ?        ?     ?          ?  (no answer)
`
)

func TestCluster(t *testing.T) {
	withC := strings.Replace(twoMembers, `"id":"c","address":"h:3","state":"suspect"`,
		`"id":"c","address":"h:3","state":"suspect","mode":"two-tier"`, 1)
	for _, s := range []scenario{
		{"cluster", withC + store, "GET /v1/cluster?nodes=true", shown},
		{"cluster",
			`{"mode":"two-tier","members":[],"redis":{"kind":"redis","up":false,"error":"refused"}}`, "GET /v1/cluster?nodes=true",
			"mode     two-tier\nstore    redis, down: refused\npending  0 buckets not in the " +
				"store yet\nmemory   0 keys, 0 B of 0 B\n" +
				"clock    +0 ms to the store's, 0 ms of it not followed yet\nring     version " +
				"0, 0 partitions, 0 members\n\n"},
		{"cluster",
			`{"mode":"two-tier","members":[],"redis":{"kind":"redis","address":"h:1","up":true}}`,
			"GET /v1/cluster?nodes=true",
			"mode     two-tier\nstore    redis h:1, up, round trip -\npending  0 buckets not in " +
				"the store yet\nmemory   0 keys, 0 B of 0 B\n" +
				"clock    +0 ms to the store's, 0 ms of it not followed yet\nring     version " +
				"0, 0 partitions, 0 members\n\n"},
		{"cluster --json", withC + store, "GET /v1/cluster?nodes=true",
			withC + store + "\n"},
		{"mode", withC + store, "GET /v1/cluster", "two-tier\n"},
		{"mode redis --admin-token secret", `{"mode":"redis"}`,
			`POST /v1/admin/mode {"mode":"redis"}`, "all nodes count in redis mode\n"},
	} {
		s.run(t, false)
	}
}

// TestWatchEnds checks that --watch carries on through errors until it is stopped.
func TestWatchEnds(t *testing.T) {
	for _, test := range []struct{ command, answer, want string }{
		{"cluster", `{"mode":"two-tier","members":[],"redis":{"kind":"redis"}}`,
			"mode     two-tier"},
		{"top", `{"keys":[{"ns":"login","key":"busy","count":7}]}`, "busy"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		s := &server{answer: test.answer, stopAt: 2, stop: stop}
		web := httptest.NewServer(s)
		defer web.Close()
		var out strings.Builder
		o := cli.IO{Environ: []string{"TWOTIER_SERVER=" + web.URL}, Stdout: &out,
			Stderr: io.Discard}
		if _, err := execute(ctx, o, []string{test.command, "--watch"}); err != nil {
			t.Error(err)
		}
		if s.calls != 2 || strings.Count(out.String(), test.want) != 1 {
			t.Errorf("%s: %d calls, printed\n%s", test.command, s.calls, out.String())
		}
	}
}

// TestTokenHint checks that a command names the flag of the token that the server wants.
func TestTokenHint(t *testing.T) {
	for accepted, want := range map[string]string{
		"the node's --admin-token":       "present it with --admin-token or TWOTIER_ADMIN_TOKEN",
		"a token of the node's --tokens": "present one with --token-file or TWOTIER_TOKEN",
	} {
		s := &server{status: 401, contentType: "application/problem+json",
			answer: `{"title":"No","status":401,"detail":"want ` + accepted + `"}`}
		if _, err := s.exec(t, "rules", "rollback", "3"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", accepted, err, want)
		}
	}
}

func TestModeNeedsTheToken(t *testing.T) {
	const problem = "application/problem+json"
	s := &server{answer: `{"mode":"redis"}`}
	web := httptest.NewServer(s)
	defer web.Close()
	if _, err := exec(t, []string{"TWOTIER_SERVER=" + web.URL, "TWOTIER_ADMIN_TOKEN=the token"},
		"mode", "redis"); err != nil || s.token != "Bearer the token" {
		t.Errorf("%v, presented %q", err, s.token)
	}
	for status, want := range map[int]string{401: "does not know this token",
		403: "without --admin-token"} {
		s := &server{status: status, contentType: problem, answer: `{"title":"No","status":` +
			map[int]string{401: "401", 403: "403"}[status] +
			`,"detail":"started without --admin-token"}`}
		if _, err := s.exec(t, "mode", "redis", "--admin-token", "x"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", status, err)
		}
	}
	s = &server{status: 503, contentType: problem,
		answer: `{"title":"Not now","status":503,"detail":"the mode stays two-tier: b can't be reached"}`}
	if _, err := s.exec(t, "mode", "redis", "--admin-token", "x"); err == nil ||
		!strings.Contains(err.Error(), "stays two-tier") || errors.As(err, new(*cli.UsageError)) {
		t.Errorf("%v", err)
	}
}

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
