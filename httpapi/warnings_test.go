package httpapi_test

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/warning"
)

var _ httpapi.Warnings = (*warning.Log)(nil)

// newWarned returns a server with warnings, which trusts some proxies.
func newWarned(t *testing.T, trusted ...string) (*httpapi.Server, *warning.Log) {
	t.Helper()
	log := warning.NewLog(slog.New(slog.DiscardHandler), time.Now)
	opt := httpapi.Options{Service: newFake(), AdminToken: adminToken, Rules: testRules{},
		RuleBook: newRuleBook(t), Warnings: log}
	for _, network := range trusted {
		opt.TrustedProxies = append(opt.TrustedProxies, netip.MustParsePrefix(network))
	}
	s, err := httpapi.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s, log
}

// TestForwardedRequestsShowWarnings sends requests like proxies that forward too little, or are not
// trusted.
func TestForwardedRequestsShowWarnings(t *testing.T) {
	for _, tt := range []struct {
		about, trusted, peer, forwarded, key, want string
	}{
		{"nobody is trusted", "", "127.0.0.1", "203.0.113.7", "ip",
			"forwarded-untrusted 127.0.0.1"},
		{"nobody is trusted, from afar", "", "198.51.100.1", "203.0.113.7", "ip",
			"forwarded-untrusted 198.51.100.1"},
		{"another network is trusted", "10.0.0.0/8", "172.17.0.1", "203.0.113.7", "ip",
			"forwarded-untrusted 172.17.0.1"},
		{"a client makes it up", "10.0.0.0/8", "198.51.100.1", "203.0.113.7", "ip", ""},
		{"nothing is forwarded to nobody", "", "127.0.0.1", "", "ip", ""},
		{"all is well", "127.0.0.0/8", "127.0.0.1", "203.0.113.7", "ip", ""},
		{"two proxies", "127.0.0.0/8", "127.0.0.1", "203.0.113.7, 127.0.0.2", "ip", ""},
		{"nothing is forwarded", "127.0.0.0/8", "127.0.0.1", "", "ip",
			"forwarded-missing 127.0.0.1"},
		{"no address at the end", "127.0.0.0/8", "127.0.0.1", "203.0.113.7, unknown", "ip",
			"forwarded-malformed 127.0.0.1"},
		{"no address behind a proxy", "127.0.0.0/8", "127.0.0.1", "_x, 127.0.0.2", "ip",
			"forwarded-malformed 127.0.0.2"},
		{"the address does not matter", "", "127.0.0.1", "203.0.113.7", "X-User", ""},
		{"no user", "", "127.0.0.1", "", "X-Missing", "no-key-source key=X-Missing"},
		{"no user, but an address", "", "127.0.0.1", "", "X-Missing,ip", ""},
		{"a secret", "", "127.0.0.1", "", "plain:Authorization",
			"secret-key key=plain:Authorization"},
		{"a hashed secret", "", "127.0.0.1", "", "Authorization", ""},
		{"a plain header", "", "127.0.0.1", "", "plain:X-User", ""},
	} {
		var trusted []string
		if tt.trusted != "" {
			trusted = append(trusted, tt.trusted)
		}
		s, log := newWarned(t, trusted...)
		for range 2 {
			ctx := newRequest("GET /v1/forward-auth?rule=login&key="+tt.key, "")
			ctx.SetRemoteAddr(&net.TCPAddr{IP: net.ParseIP(tt.peer), Port: 1234})
			ctx.Request.Header.Set("X-User", "bob")
			ctx.Request.Header.Set("Authorization", "Bearer "+adminToken)
			if tt.forwarded != "" {
				ctx.Request.Header.Set("X-Forwarded-For", tt.forwarded)
			}
			s.Handle(ctx)
			status(t, ctx, 200, "")
		}
		var got []string
		for _, w := range log.List() {
			got = append(got, string(w.Code)+" "+w.At)
		}
		if all := strings.Join(got, ", "); all != tt.want {
			t.Errorf("%s: warns of %q, want %q", tt.about, all, tt.want)
		}
	}
}

// TestWarningsAreAnswered reads the warnings of a node, and of a document that is put in force.
func TestWarningsAreAnswered(t *testing.T) {
	s, log := newWarned(t)
	status(t, call(s, "GET /v1/rules?warnings=true", ""), 200, `{"version":0,"warnings":[]}`)
	got := call(s, "GET /v1/rules", "")
	if n := got.Response.Header.Peek("Twotier-Warnings"); n != nil {
		t.Errorf("%s warnings", n)
	}
	ofRules := warning.Warning{Code: warning.CoarseWindow, At: "rules:2:28", Reason: `"why"`,
		Instead: "this"}
	log.Replace(warning.Rules, []warning.Warning{ofRules})
	log.Replace(warning.Settings, []warning.Warning{{Code: warning.NoEffect, At: "--max-lag"}})
	var answer struct {
		Version  int
		Warnings []warning.Warning
	}
	got = put(s, `"0"`, oneRule)
	status(t, got, 200, `{"version":1,`)
	if err := json.Unmarshal(got.Response.Body(), &answer); err != nil ||
		len(answer.Warnings) != 1 || answer.Warnings[0] != ofRules {
		t.Errorf("PUT: %v, %v", answer, err)
	}
	got = call(s, "GET /v1/rules?warnings=true", "")
	if err := json.Unmarshal(got.Response.Body(), &answer); err != nil || answer.Version != 1 ||
		len(answer.Warnings) != 2 || answer.Warnings[0] != ofRules {
		t.Errorf("GET: %v, %v", answer, err)
	}
	for _, accept := range []string{"application/json", "application/yaml"} {
		ctx := newRequest("GET /v1/rules", "")
		ctx.Request.Header.Set("Accept", accept)
		s.Handle(ctx)
		if n := ctx.Response.Header.Peek("Twotier-Warnings"); string(n) != "2" {
			t.Errorf("%s: %s warnings, want 2", accept, n)
		}
	}
	status(t, call(s, "GET /v1/rules?warnings=1", ""), 422, "warnings: want true")
	status(t, call(s, "GET /v1/rules?warnings=true&version=1", ""), 422, "not both")
	status(t, call(s, "GET /v1/rules?warnings=true&history=true", ""), 422,
		"want one of limits, history and warnings")
}
