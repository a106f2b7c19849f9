package limiter_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"twotier.dev/twotier/bench/limiter"
)

func TestHTTP(t *testing.T) {
	const want = `{"ts":5,"key":"a","n":2,"limits":[{"window":"59s","max":2},{"window":"24h","max":50}]}`
	var status int
	var answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/v1/acquire" || string(body) != want {
			t.Errorf("%s %s", r.URL.Path, body)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	cases := []struct {
		status  int
		answer  string
		allowed bool
		err     string
	}{
		{200, `{"allowed":true}`, true, ""},
		{200, `{"allowed":false}`, false, ""},
		{200, `{}`, false, "no field allowed"},
		{422, `{"detail":"ts: too old"}`, false, "too old"},
	}
	for _, c := range cases {
		status, answer = c.status, c.answer
		h := limiter.NewHTTP("twotier", strings.TrimPrefix(server.URL, "http://"))
		allowed, err := limiter.Ask(t.Context(), h, call("a", 2, 5,
			[]limiter.Limit{{Window: 59_000, Max: 2}, {Window: 86_400_000, Max: 50}}))
		if allowed != c.allowed || (err == nil) != (c.err == "") || err != nil &&
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("%d %s: allowed=%t, %v", c.status, c.answer, allowed, err)
		}
	}
}

func TestExactWindowIsHalfOpen(t *testing.T) {
	var e limiter.Exact
	one := []limiter.Limit{{Window: minute, Max: 1}}
	for _, c := range []struct {
		ts   int64
		want bool
	}{{start, true}, {start + minute - 1, false}, {start + minute, true}} {
		if got, _ := limiter.Ask(t.Context(), &e, call("k", 1, c.ts, one)); got != c.want {
			t.Errorf("at %d: %t", c.ts-start, got)
		}
	}
}
