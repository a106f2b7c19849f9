package envoy_test

import (
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// TestCalendarLimits asks a minute before midnight in Shanghai, and after it.
func TestCalendarLimits(t *testing.T) {
	b := start(t)
	b.now.Store(time.Date(2026, 7, 14, 15, 59, 0, 0, time.UTC).UnixMilli())
	for _, want := range []string{"OK: OK 1 of 2/DAY", "OK: OK 0 of 2/DAY",
		"OVER_LIMIT: OVER_LIMIT 0 of 2/DAY"} {
		b.want(b.ask(descriptor("quota=a")), want)
	}
	b.now.Add(60_000)
	b.want(b.ask(descriptor("quota=a")), "OK: OK 1 of 2/DAY")
	answer, err := b.ShouldRateLimit(t.Context(), nil, &ratelimitv3.RateLimitRequest{Domain: "edge",
		Descriptors: []*commonv3.RateLimitDescriptor{descriptor("quota=a")}})
	if err != nil {
		t.Fatal(err)
	}
	// The service takes the end of the day from the machine's clock.
	left := answer.GetStatuses()[0].GetDurationUntilReset().AsDuration()
	if left <= 0 || left > 24*time.Hour {
		t.Errorf("reset in %v", left)
	}
	for _, h := range answer.GetResponseHeadersToAdd() {
		if h.GetKey() == "RateLimit-Policy" && !strings.HasSuffix(h.GetValue(), ";q=2;w=86400") ||
			h.GetKey() == "RateLimit" && !strings.Contains(h.GetValue(), ";r=0;t=") {
			t.Errorf("%s: %s", h.GetKey(), h.GetValue())
		}
	}
}
