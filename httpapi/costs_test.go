package httpapi_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/testing/costtable"
)

// TestEveryRouteHasACost compares the routes of a server that serves everything with the table of
// costs.
func TestEveryRouteHasACost(t *testing.T) {
	f := newFake()
	s, err := httpapi.New(httpapi.Options{Service: f, AdminToken: adminToken, Rules: testRules{},
		Holds: documentedHolds(), RateLimiter: &limiter{}, RuleBook: newRuleBook(t),
		Backtester: new(backtester), Story: &tale{}, Peer: echo{},
		Admin: "127.0.0.1:0", PeerListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	var served []string
	for call := range s.Served() {
		_, path, _ := strings.Cut(call, " ")
		for _, many := range []string{"/assets/", "/debug/pprof/"} {
			if strings.HasPrefix(path, many) {
				path = many
			}
		}
		served = append(served, path)
	}
	costtable.Compare(t, "../docs/security.md", served, func(call string) bool {
		return call[0] == '/' && !strings.Contains(call, ".v")
	})
}
