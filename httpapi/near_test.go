package httpapi_test

import (
	"strings"
	"testing"
)

// TestNear lists the limits in "near": limits of rules that allow, with a count at or above the
// rule's warning level. The levels of rule warned are 3 of 3 in a minute and 4 of 5 in an hour, of
// rule warned-shadow 1 of 2, and of the values 2 of 2.
func TestNear(t *testing.T) {
	const batch, acquire = "POST /v1/batch", "POST /v1/acquire"
	for _, tt := range []struct {
		count      int64 // of key k, before
		call, body string
		want       string // "near", or "" if the answer has none
	}{
		{0, acquire, `{"key":"k","n":2,"rules":["warned"]}`, ""},
		{0, acquire, `{"key":"k","n":3,"rules":["warned"]}`, `["warned/1m"]`},
		{0, acquire, `{"key":"k","n":3,"rules":["warned"],"dry_run":true}`, `["warned/1m"]`},
		{3, acquire, `{"key":"k","n":0,"rules":["warned"]}`, ""}, // of 5, and the other refuses
		{4, acquire, `{"key":"k","rules":["warned"]}`, `["warned/1h"]`},
		{5, acquire, `{"key":"k","rules":["warned"]}`, ""},
		{0, acquire, `{"key":"k","n":4,"rules":["warned"],"charge":true}`, `["warned/1h"]`},
		{0, acquire, `{"key":"k","rules":["warned-shadow"]}`, `["warned-shadow"]`},
		{2, acquire, `{"key":"k","rules":["warned-shadow"]}`, ""},
		{0, acquire, `{"key":"k","n":3,"limits":[{"window":"1m","max":3}],"rules":["login"]}`, ""},
		{2, acquire, `{"checks":[{"key":"l","rules":["login"]},{"key":"k","rules":["warned"]}]}`,
			`["checks[1].warned/1m"]`},
		{2, batch, `{"ops":[{"op":"acquire","key":"k","rules":["warned"]}]}`, `["warned/1m"]`},
		{3, "POST /v1/add", `{"key":"k","rules":["warned"]}`, ""},
		{0, "POST /v1/distinct", `{"key":"k","values":["a"],"rules":["warned-values"]}`, ""},
		{0, "POST /v1/distinct", `{"key":"k","values":["a","b"],"rules":["warned-values"]}`,
			`["warned-values/1h"]`},
		{0, "POST /v1/distinct", `{"key":"k","values":["a","b","c"],"rules":["warned-values"]}`,
			""},
	} {
		f := newFake()
		f.set([]byte("k"), tt.count)
		s, _ := judging(t, f)
		ctx := call(s, tt.call, tt.body)
		answer := string(ctx.Response.Body())
		_, near, found := strings.Cut(answer, `,"near":`)
		near, _, _ = strings.Cut(near, `],`)
		if found {
			near += "]"
		}
		if ctx.Response.StatusCode() != 200 || near != tt.want {
			t.Errorf("%s with %d before: %d, near %s, want %s\n%s", tt.body, tt.count,
				ctx.Response.StatusCode(), near, tt.want, answer)
		}
	}
}
