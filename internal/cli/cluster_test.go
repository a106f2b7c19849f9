package cli_test

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/cli"
)

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
	mapped = `
A  a, 51 partitions
B  b, 52 partitions
C  c, 0 partitions

     0  ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB
    70  ABABABABABABABABABABABABABABABABB
`
)

func TestCluster(t *testing.T) {
	withC := strings.Replace(twoMembers, `"id":"c","address":"h:3","state":"suspect"`,
		`"id":"c","address":"h:3","state":"suspect","mode":"two-tier"`, 1)
	owners := `"owners":[` + strings.Repeat("0,1,", 51) + `1],`
	tests := []struct{ name, args, answer, asked, want string }{
		{"three members", "cluster", withC + store, "GET /v1/cluster?nodes=true", shown},
		{"owners", "cluster --owners", withC + owners + store,
			"GET /v1/cluster?nodes=true&owners=true", shown + mapped},
		{"without a store", "cluster",
			`{"mode":"two-tier","members":[],"redis":{"kind":"redis","up":false,"error":"refused"}}`, "GET /v1/cluster?nodes=true",
			"mode     two-tier\nstore    redis, down: refused\npending  0 buckets not in the " +
				"store yet\nmemory   0 keys, 0 B of 0 B\n" +
				"clock    +0 ms to the store's, 0 ms of it not followed yet\nring     version " +
				"0, 0 partitions, 0 members\n\n"},
		{"nothing measured yet", "cluster",
			`{"mode":"two-tier","members":[],"redis":{"kind":"redis","address":"h:1","up":true}}`,
			"GET /v1/cluster?nodes=true",
			"mode     two-tier\nstore    redis h:1, up, round trip -\npending  0 buckets not in " +
				"the store yet\nmemory   0 keys, 0 B of 0 B\n" +
				"clock    +0 ms to the store's, 0 ms of it not followed yet\nring     version " +
				"0, 0 partitions, 0 members\n\n"},
		{"as JSON", "cluster --json", withC + store, "GET /v1/cluster?nodes=true",
			withC + store + "\n"},
		{"mode", "mode", withC + store, "GET /v1/cluster", "two-tier\n"},
		{"another mode", "mode redis --admin-token secret", `{"mode":"redis"}`,
			`POST /v1/admin/mode {"mode":"redis"}`, "all nodes count in redis mode\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &server{answer: test.answer}
			got, err := s.exec(t, strings.Split(test.args, " ")...)
			if err != nil || s.asked != test.asked {
				t.Errorf("asked %s\nwant  %s, %v", s.asked, test.asked, err)
			}
			if got != test.want {
				t.Errorf("printed\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestManyOwners shows more members than there are letters, and owners that don't exist.
func TestManyOwners(t *testing.T) {
	answer := `{"members":[` + strings.Repeat(`{"id":"m"},`, 99) +
		`{"id":"m"}],"owners":[0,61,62,98,99,100,-1],"redis":{}}`
	got, err := (&server{answer: answer}).exec(t, "cluster", "--owners")
	if err != nil || !strings.HasSuffix(got, "\n     0  A9****?\n") {
		t.Errorf("%v\n%s", err, got)
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
