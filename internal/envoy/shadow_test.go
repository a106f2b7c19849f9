package envoy_test

import (
	"fmt"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// TestShadow asks for a domain in shadow: no limit of it refuses or charges, nor does the limit of
// a request. The other domain refuses.
func TestShadow(t *testing.T) {
	b := start(t)
	doc, err := rules.Read("test.yaml", []byte(document))
	must.Succeed(t, err)
	b.book.Shadow = twotier.Shadow{"edge": true}
	b.book.Set(doc, 2)
	own := descriptor("any=thing")
	own.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{Unit: typev3.RateLimitUnit_MINUTE}
	b.want(b.ask(hits(descriptor("ip=1"), 2)), "OK: OK 1 of 3/MINUTE")
	b.want(b.ask(hits(descriptor("ip=1"), 2)), "OK: OK 0 of 3/MINUTE")
	b.want(b.ask(hits(descriptor("ip=1"), 0)), "OK: OK 0 of 3/MINUTE")
	b.want(b.ask(descriptor("ip=6.6.6.6")), "OK: OK 0 of 0/SECOND")
	b.want(b.ask(descriptor("user=u path=/")), "OK: OK 8 of 9/MINUTE")
	b.want(b.ask(hits(descriptor("user=u"), 7)), "OK: OK 0 of 5/HOUR")
	b.want(b.ask(hits(descriptor("tokens=a"), 1001), own),
		"OK: OK 0 of 1000/MINUTE OK 0 of 0/MINUTE")
	other := func() string {
		return b.send(&ratelimitv3.RateLimitRequest{Domain: "other",
			Descriptors: []*commonv3.RateLimitDescriptor{descriptor("ip=1")}})
	}
	b.want(other(), "OK: OK 0 of 1/MINUTE")
	b.want(other(), "OVER_LIMIT: OVER_LIMIT 0 of 1/MINUTE")
	got := ""
	for _, r := range b.counted.Rows() {
		got += fmt.Sprintf("%s/%s %v\n", r.Namespace, r.Rule, r.Totals)
	}
	b.want(got, "edge/ [2 0 4 0]\nedge/per_user [0 0 1 0]\nother/ [1 1 0 0]\n")
}
