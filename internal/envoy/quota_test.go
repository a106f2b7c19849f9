package envoy_test

import (
	"fmt"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"twotier.dev/twotier/internal/testing/must"
)

// TestQuotaMode asks beyond a limit in quota mode: the request passes, and Envoy receives the state
// of the limit.
func TestQuotaMode(t *testing.T) {
	b := start(t)
	quota := func(descriptors ...*commonv3.RateLimitDescriptor) string {
		t.Helper()
		answer, err := b.ShouldRateLimit(t.Context(), nil, &ratelimitv3.RateLimitRequest{
			Domain: "edge", Descriptors: descriptors})
		must.Succeed(t, err)
		text := fmt.Sprint(answer.GetOverallCode(), " ", answer.GetStatuses()[0].GetCode())
		fields := answer.GetDynamicMetadata().GetFields()
		if fields["quotaModeEnabled"].GetBoolValue() {
			text += fmt.Sprint(" ", fields["quotaModeViolations"].GetListValue().AsSlice())
		}
		return text
	}
	b.want(quota(descriptor("budget=a"), descriptor("ip=1")), "OK OK []")
	b.want(quota(descriptor("budget=a"), descriptor("ip=1")), "OK OVER_LIMIT [0]")
	b.want(quota(descriptor("budget=b"), descriptor("budget=a")), "OK OK [1]")
	b.want(quota(hits(descriptor("budget=a"), 0)), "OK OVER_LIMIT [0]")
	b.want(quota(hits(descriptor("budget=a"), -9)), "OK OK []")
	b.want(quota(descriptor("budget=a")), "OK OK []")
	b.want(quota(descriptor("ip=6.6.6.6"), descriptor("budget=c")), "OVER_LIMIT OVER_LIMIT []")
	b.want(quota(descriptor("ip=2")), "OK OK")
}
