package cli_test

import (
	"errors"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/cli"
)

// TestCountedRefusal checks that the output of a refusal reports counted events, and that 0 events
// are asked about.
func TestCountedRefusal(t *testing.T) {
	for _, tt := range []struct{ args, answer, asked, want string }{
		{"a --limit 1/1m -n 2 --charge",
			`{"allowed":false,"limits":[],"retry_after_ms":900,"ts":7,"source":"memory"}`,
			`POST /v1/acquire {"key":"a","n":2,"limits":[{"window":"1m","max":1}],"charge":true}`,
			"refused, try again in 900ms; the events were counted (memory)"},
		{"--check a:1/1m --check b:1/1m --charge", `{"allowed":false,"checks":[{"key":"a"},` +
			`{"key":"b","ts":7}],"retry_after_ms":900,"source":"memory"}`,
			`POST /v1/acquire {"checks":[` +
				`{"key":"a","n":1,"limits":[{"window":"1m","max":1}]},` +
				`{"key":"b","n":1,"limits":[{"window":"1m","max":1}]}],"charge":true}`,
			"refused, try again in 900ms; the events were counted (memory)"},
		{"a --limit 1/1m -n 0",
			`{"allowed":false,"limits":[],"retry_after_ms":900,"source":"memory"}`,
			`POST /v1/acquire {"key":"a","n":0,"limits":[{"window":"1m","max":1}]}`,
			"refused, try again in 900ms (memory)"},
	} {
		s := &server{answer: tt.answer}
		got, err := s.exec(t, append([]string{"acquire"}, strings.Fields(tt.args)...)...)
		if got, _, _ = strings.Cut(got, "\n"); !errors.Is(err, cli.ErrRefused) || got != tt.want {
			t.Errorf("%s: %v, printed %q, want %q", tt.args, err, got, tt.want)
		}
		if s.asked != tt.asked {
			t.Errorf("%s: asked %s\nwant  %s", tt.args, s.asked, tt.asked)
		}
	}
}

// TestNearAcquire checks that the output names the limits that the request is near.
func TestNearAcquire(t *testing.T) {
	s := &server{answer: `{"allowed":true,"limits":[` +
		`{"window":"1m","max":5,"count":4,"remaining":1,"rule":"login"}],` +
		`"near":["login","day/24h"],"retry_after_ms":0,"source":"memory"}`}
	got, err := s.exec(t, "acquire", "a", "--rule", "login")
	const want = `allowed (memory)
KEY  WINDOW  LIMIT  COUNT  REMAINING
a    1m          5      4          1  login
near: login, day/24h
`
	if err != nil || got != want {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, got, want)
	}
	s.answer = `{"key":"a","counts":[],"over":false,"near":["devices"],"source":"memory"}`
	if got, err = s.exec(t, "distinct", "a", "v"); err != nil ||
		!strings.HasSuffix(got, "\nnear: devices\n") {
		t.Errorf("%v, printed\n%s", err, got)
	}
}

func TestRefusedAcquire(t *testing.T) {
	const answer = `{"allowed":false,"checks":[{"key":"user:7","allowed":true,"limits":[{"window":"1m","max":15,"count":3,"remaining":12}],"retry_after_ms":0},` +
		`{"key":"ip","allowed":false,"limits":[{"window":"1m","max":1,"count":1,"remaining":0,"refused":true}],"retry_after_ms":12400}],"retry_after_ms":12400,"source":"memory"}`
	s := &server{answer: answer}
	args := []string{"acquire", "--check", "user:7:15/1m", "--check", "ip:1/1m", "-n", "1", "--ns",
		"x", "--count-denied"}
	got, err := s.exec(t, args...)
	if !errors.Is(err, cli.ErrRefused) {
		t.Errorf("error %v", err)
	}
	const want = `refused, try again in 12.4s (memory)
KEY     WINDOW  LIMIT  COUNT  REMAINING
user:7  1m         15      3         12
ip      1m          1      1          0  refused
`
	if got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	const asked = `POST /v1/acquire {"checks":[{"ns":"x","key":"user:7","n":1,"limits":[{"window":"1m","max":15}]},{"ns":"x","key":"ip","n":1,"limits":[{"window":"1m","max":1}]}],"count_denied":true}`
	if s.asked != asked {
		t.Errorf("asked %s\nwant  %s", s.asked, asked)
	}
	if got, err = s.exec(t, append(args, "--json")...); !errors.Is(err, cli.ErrRefused) ||
		got != answer+"\n" {
		t.Errorf("as JSON: %v\n%s", err, got)
	}
	s.answer = `{"allowed":false,"limits":[],"retry_after_ms":-1,"source":"memory"}`
	if got, _ = s.exec(t, "acquire", "a", "--limit", "1/1m", "-n", "2"); !strings.Contains(got,
		"always will be") {
		t.Errorf("printed %s", got)
	}
}

// TestBannedAcquire checks that the output names the banning rules, the banned keys and the end of
// each ban.
func TestBannedAcquire(t *testing.T) {
	s := &server{answer: `{"allowed":false,` +
		`"limits":[{"window":"1m","max":3,"count":1,"remaining":2,"rule":"login"}],` +
		`"refused_by":["login/ban","slow/ban"],"bans":[` +
		`{"rule":"login","key":"a\tb","until":1767226200999},` +
		`{"rule":"slow","key":"a","until":1767226260000,"started":true}],` +
		`"retry_after_ms":9000,"source":"memory"}`}
	got, err := s.exec(t, "acquire", "a\tb", "--rule", "login")
	const want = `refused, try again in 9s (memory)
KEY     WINDOW  LIMIT  COUNT  REMAINING
"a\tb"  1m          3      1          2  login
rule login bans "a\tb" until 2026-01-01T00:10:00Z
rule slow bans a until 2026-01-01T00:11:00Z, from this refusal on
`
	if !errors.Is(err, cli.ErrRefused) || got != want {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, got, want)
	}
}

// TestWhyNever checks the reason given for a permanent refusal.
func TestWhyNever(t *testing.T) {
	const together = "checks of the same key are more than a limit together"
	s := &server{answer: `{"allowed":false,"limits":[],"checks":[],"retry_after_ms":-1}`}
	for args, want := range map[string]string{
		"a --limit 5/1m -n 6":                "-n is more than a limit",
		"--check a:5/1m --check b:9/1m -n 6": "-n is more than a limit",
		"--check a:9/1m --check a:9/1h -n 5": together,
		"--check a:9/1m --check a:5/1m -n 5": together,
	} {
		got, _ := s.exec(t, append([]string{"acquire"}, strings.Fields(args)...)...)
		if line, _, _ := strings.Cut(got, " ("); line != "refused, and always will be: "+want {
			t.Errorf("%s: %s", args, line)
		}
	}
}

// TestDistinct adds values under a limit that refuses them, and counts without limits.
func TestDistinct(t *testing.T) {
	s := &server{answer: `{"key":"a","counts":[` +
		`{"window":"24h","max":2,"count":2,"error":0,"bucket_ms":900000},` +
		`{"window":"1h","count":9012,"at_least":8724,"at_most":9300,"error":0.016}],` +
		`"over":true,"source":"memory","degraded":false}`}
	got, err := s.exec(t, "distinct", "a", "v", "w", "--limit", "2/24h", "--window", "1h", "--ns",
		"x", "--ack", "redis")
	const want = `a (memory)
WINDOW  LIMIT  DIFFERENT  ERROR
24h         2          2  exact
1h                  9012  1.6 %
`
	if !errors.Is(err, cli.ErrRefused) || got != want {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, got, want)
	}
	const asked = `POST /v1/distinct {"ns":"x","key":"a","values":["v","w"],"window":"1h",` +
		`"ack":"redis","limits":[{"window":"24h","max":2}]}`
	if s.asked != asked {
		t.Errorf("asked %s\nwant  %s", s.asked, asked)
	}
	s.answer = `{"key":"a","counts":[],"source":"owner","degraded":false}`
	if _, err = s.exec(t, "distinct", "a"); err != nil ||
		s.asked != `GET /v1/distinct?key=a&window=1h%2C24h` {
		t.Errorf("%v, asked %s", err, s.asked)
	}
	s.answer = `{"key":"a","counts":[{"window":"1h","count":9,"error":0,"bucket_ms":60000}],` +
		`"source":"owner","degraded":false}`
	got, err = s.exec(t, "distinct", "a")
	if err != nil || got != "a (owner)\nWINDOW  DIFFERENT  ERROR\n1h              9  exact\n" {
		t.Errorf("%v, without limits:\n%s", err, got)
	}
	for _, args := range [][]string{{"distinct"}, {"distinct", "a", "--window", "x"},
		{"distinct", "a", "--limit", "1/1m"}, {"distinct", "a", "--rule", "devices"}} {
		if _, err := s.exec(t, args...); !errors.As(err, new(*cli.UsageError)) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestDistinctByRules names rules, and shows which rule a limit belongs to.
func TestDistinctByRules(t *testing.T) {
	s := &server{answer: `{"key":"a","counts":[` +
		`{"window":"24h","max":5,"count":5,"error":0,"bucket_ms":900000,"refused":true,` +
		`"rule":"devices"},{"window":"1h","max":2,"count":5,"error":0,"bucket_ms":60000,` +
		`"refused":true,"rule":"tight","shadow":true},` +
		`{"window":"7h","count":5,"error":0,"bucket_ms":900000}],"over":true,` +
		`"refused_by":["devices"],"retry_after_ms":12400,"rules_version":3,` +
		`"source":"memory","degraded":false}`}
	got, err := s.exec(t, "distinct", "a", "v", "--rule", "devices", "--rule", "tight", "--window",
		"7h")
	const want = `a (memory)
WINDOW  LIMIT  DIFFERENT  ERROR
24h         5          5  exact  devices, refused
1h          2          5  exact  tight, in shadow, refused
7h                     5  exact
refused, try again in 12.4s
`
	if !errors.Is(err, cli.ErrRefused) || got != want {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, got, want)
	}
	const asked = `POST /v1/distinct {"key":"a","values":["v"],"window":"7h",` +
		`"rules":["devices","tight"]}`
	if s.asked != asked {
		t.Errorf("asked %s\nwant  %s", s.asked, asked)
	}
}

// TestDistinctNeverFits adds more values in one request than a limit allows.
func TestDistinctNeverFits(t *testing.T) {
	s := &server{answer: `{"key":"a","counts":[{"window":"24h","max":1,"count":0,"error":0,` +
		`"bucket_ms":900000,"refused":true}],"over":true,"refused_by":["limits[0]"],` +
		`"retry_after_ms":-1,"source":"memory","degraded":false}`}
	got, err := s.exec(t, "distinct", "a", "v", "w", "--limit", "1/24h")
	const last = "\nrefused, and always will be: more different values than a limit allows\n"
	if !errors.Is(err, cli.ErrRefused) || !strings.HasSuffix(got, last) {
		t.Errorf("%v, printed\n%s", err, got)
	}
}
