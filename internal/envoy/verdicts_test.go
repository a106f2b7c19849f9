package envoy_test

import (
	"context"
	"fmt"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// TestVerdictsAreCounted checks that each descriptor with hits and a limit is counted, by the name
// of the limit and by the listener.
func TestVerdictsAreCounted(t *testing.T) {
	b := start(t)
	for range 4 {
		b.ask(descriptor("ip=1.2.3.4"), descriptor("path=/try"), descriptor("path=/free"),
			hits(descriptor("ip=9.9.9.9"), 0))
	}
	b.ask(descriptor("user=a"), hits(descriptor("ip=1.2.3.4"), -1))
	const body = `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	if _, _, err := b.JSON(t.Context(), nil, []byte(body)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a failed request has no verdict
	if answer, err := b.ShouldRateLimit(ctx, nil, &ratelimitv3.RateLimitRequest{}); err == nil {
		t.Error(answer)
	}
	got := ""
	for _, r := range b.counted.Rows() {
		got += fmt.Sprintf("%v %s/%s %v\n", r.Door, r.Namespace, r.Rule, r.Totals)
	}
	// The hit of ip after its refusal is only compared, not counted.
	b.want(got, "grpc edge/ [4 1 3 0]\n"+
		"envoy-json edge/per_user [1 0 0 0]\ngrpc edge/per_user [1 0 0 0]\n")
}
