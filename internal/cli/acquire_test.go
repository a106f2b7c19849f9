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
