package client_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier/httpapi/client"
)

func TestGate(t *testing.T) {
	b := newBed(t, 1)
	g := &client.Gate{Client: b.client(), Limits: []client.Limit{{Window: time.Minute, Max: 3}}, Wait: 5 * time.Second}
	passed := 0
	h := g.Handler(
		func(r *http.Request) string { return r.Header.Get("User") },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { passed++ }),
	)
	ask := func(user string) *http.Response {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("User", user)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	for i := range 5 {
		resp := ask("ann")
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		switch {
		case i < 3 && resp.StatusCode != 200:
			t.Errorf("request %d: %d", i, resp.StatusCode)
		case i >= 3 && (resp.StatusCode != 429 || after < 1 || after > 62):
			t.Errorf("request %d: %d, Retry-After %q", i, resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	}
	for range 5 {
		if resp := ask(""); resp.StatusCode != 200 {
			t.Errorf("without a key: %d", resp.StatusCode)
		}
	}
	if passed != 8 {
		t.Errorf("%d passed", passed)
	}
	never := &client.Gate{Client: g.Client, Limits: []client.Limit{{Window: time.Minute}}, Wait: 5 * time.Second}
	w := httptest.NewRecorder()
	never.Handler(func(*http.Request) string { return "bob" }, h).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 429 || w.Header().Get("Retry-After") != "" {
		t.Errorf("a limit of none: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestGateWithoutAService(t *testing.T) {
	c, err := client.New(client.Options{Addresses: []string{"127.0.0.1:1"}})
	must(t, err)
	defer c.Close(t.Context())
	for _, closed := range []bool{false, true} {
		var told atomic.Int64
		g := &client.Gate{
			Client: c, Limits: []client.Limit{{Window: time.Minute, Max: 3}}, FailClosed: closed, Wait: 5 * time.Second,
			OnError: func(key string, err error) {
				if key != "ann" || err == nil {
					t.Errorf("%q, %v", key, err)
				}
				told.Add(1)
			},
		}
		code, after := 200, ""
		if closed {
			code, after = 503, "1"
		}
		w := httptest.NewRecorder()
		g.Handler(func(*http.Request) string { return "ann" }, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).
			ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != code || w.Header().Get("Retry-After") != after || told.Load() != 1 {
			t.Errorf("closed %v: %d, Retry-After %q, told %d times", closed, w.Code, w.Header().Get("Retry-After"), told.Load())
		}
		var ctx fasthttp.RequestCtx
		g.FastHandler(func(*fasthttp.RequestCtx) string { return "ann" }, func(*fasthttp.RequestCtx) {})(&ctx)
		if ctx.Response.StatusCode() != code || string(ctx.Response.Header.Peek("Retry-After")) != after {
			t.Errorf("fasthttp, closed %v: %d", closed, ctx.Response.StatusCode())
		}
	}
}
