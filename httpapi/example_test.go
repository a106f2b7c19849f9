package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
)

// quota is a Service that gives every key 2 events, ever. It implements acquire; the calls that
// this example does not make are left to the embedded interface.
type quota struct {
	httpapi.Service
	mu   sync.Mutex
	used map[string]int64
}

func (q *quota) Do(_ context.Context, op *twotier.Op, res *twotier.Result) error {
	const most = 2
	if op.Kind != twotier.Acquire || len(op.Checks) != 1 {
		return twotier.ErrUnavailable
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	check := &op.Checks[0]
	key := string(check.Key) // the key is a view into the request: copy it to keep it
	res.Source, res.Allowed = twotier.SourceMemory, q.used[key]+check.N <= most
	if res.Allowed {
		q.used[key] += check.N
	} else {
		res.RetryAfter = -1
	}
	answer := res.AddCheck()
	answer.Refused, answer.RetryAfter = !res.Allowed, res.RetryAfter
	for _, l := range check.Limits {
		n := q.used[key]
		answer.Limits = append(answer.Limits, twotier.LimitResult{Window: l.Window, Max: l.Max,
			Count: n, Lo: n, Hi: n, Refused: !res.Allowed})
	}
	return nil
}

func Example() {
	ctx := context.Background()
	server, err := httpapi.New(httpapi.Options{
		Service: &quota{used: make(map[string]int64)},
		Listen:  "127.0.0.1:0",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := server.Open(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close(ctx)

	url := "http://" + server.Addr().String() + "/v1/acquire?deny=429"
	for range 3 {
		resp, err := http.Post(url, "application/json",
			strings.NewReader(`{"key":"alice","limits":[{"window":"1m","max":2}]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// 200 OK
	// 429 Too Many Requests
}
