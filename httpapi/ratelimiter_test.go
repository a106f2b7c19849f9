package httpapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/request"
)

// limiter is a rate limiter that repeats the request in its answer.
type limiter struct {
	over bool
	err  error
}

// JSON implements [httpapi.RateLimiter].
func (l *limiter) JSON(_ context.Context, _ *twotier.Grant, body []byte) ([]byte, bool, error) {
	return []byte(`{"asked":` + string(body) + `}`), l.over, l.err
}

func TestRateLimitJSON(t *testing.T) {
	invalid := request.Failure{Kind: request.Invalid, Detail: "domain: missing"}
	for _, tt := range []struct {
		over bool
		err  error
		code int
		want string
	}{
		{false, nil, 200, `{"asked":{}}`},
		{true, nil, 429, `{"asked":{}}`},
		{false, &invalid, 422, `"detail":"domain: missing"`},
		{false, &request.Failure{Kind: request.Forbidden}, 403, `:problem:forbidden"`},
		{false, &request.Failure{Kind: request.Overload},
			429, `:overload"`},
		{false, &request.Failure{Kind: request.Unknown}, 503,
			`"outcome":"unknown"`},
		{false, errors.New("other"), 500, `:problem:internal"`},
	} {
		s, err := httpapi.New(httpapi.Options{Service: newFake(),
			RateLimiter: &limiter{over: tt.over, err: tt.err}})
		if err != nil {
			t.Fatal(err)
		}
		r := call(s, "POST /json", "{}")
		body := string(r.Response.Body())
		if code := r.Response.StatusCode(); code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%v, %v: %d %s", tt.over, tt.err, code, body)
		}
	}
	s, err := httpapi.New(httpapi.Options{Service: newFake()})
	if err != nil {
		t.Fatal(err)
	}
	if code := call(s, "POST /json", "{}").Response.StatusCode(); code != 404 {
		t.Errorf("without a limiter: %d", code)
	}
	s = newServer(t, newFake())
	if code := call(s, "POST /json?x=1", "{}").Response.StatusCode(); code != 422 {
		t.Errorf("with a query: %d", code)
	}
}
