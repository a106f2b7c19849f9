package envoy

import (
	"bytes"
	"context"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/verdicts"
)

// JSON is ShouldRateLimit with the JSON form of Envoy's API. over reports whether the answer is
// OVER_LIMIT.
func (l *Limiter) JSON(ctx context.Context, g *twotier.Grant, body []byte) (answer []byte,
	over bool,
	err error) {
	var r ratelimitv3.RateLimitRequest
	if protojson.Unmarshal(body, &r) != nil {
		r.Reset()
		if err := protojson.Unmarshal(replaceInvalidText(body), &r); err != nil {
			return nil, false, invalidError("not a RateLimitRequest: %v", err)
		}
	}
	response, err := l.decide(ctx, g, &r, verdicts.EnvoyJSON)
	if err != nil {
		return nil, false, err
	}
	answer, err = protojson.Marshal(response)
	return answer, response.GetOverallCode() == overLimit, err
}

// replaceInvalidText returns JSON with U+FFFD in place of invalid text: bytes that are not UTF-8,
// and escaped surrogates without the other half (RFC 8259, section 8.2). Clients that forward the
// headers of strangers send both.
func replaceInvalidText(body []byte) []byte {
	const replacement = `\ufffd`
	var b []byte
	for rest := bytes.ToValidUTF8(body, []byte(string(utf8.RuneError))); len(rest) > 0; {
		if rest[0] != '\\' {
			b, rest = append(b, rest[0]), rest[1:]
			continue
		}
		n := min(2, len(rest))
		if first, ok := decodeUnitEscape(rest); ok {
			n = len(replacement)
			second, _ := decodeUnitEscape(rest[n:])
			switch {
			case utf16.DecodeRune(first, second) != utf8.RuneError:
				n *= 2
			case utf16.IsSurrogate(first):
				b, rest = append(b, replacement...), rest[n:]
				continue
			}
		}
		b, rest = append(b, rest[:n]...), rest[n:]
	}
	return b
}

// decodeUnitEscape returns the code unit of the escape, such as \u00e9, at the front of b.
func decodeUnitEscape(b []byte) (unit rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(v), err == nil
}
