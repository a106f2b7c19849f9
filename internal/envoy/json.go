package envoy

import (
	"context"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"twotier.dev/twotier/httpapi/token"
	"twotier.dev/twotier/internal/verdicts"
)

// JSON is ShouldRateLimit with the JSON form of Envoy's API. over reports whether the answer is
// OVER_LIMIT.
func (l *Limiter) JSON(ctx context.Context, g *token.Grant, body []byte) (answer []byte, over bool,
	err error) {
	var r ratelimitv3.RateLimitRequest
	if err := protojson.Unmarshal(body, &r); err != nil {
		return nil, false, invalid("not a RateLimitRequest: %v", err)
	}
	response, err := l.decide(ctx, g, &r, verdicts.EnvoyJSON)
	if err != nil {
		return nil, false, err
	}
	answer, err = protojson.Marshal(response)
	return answer, response.GetOverallCode() == overLimit, err
}
