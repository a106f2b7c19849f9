package acceptance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestEventTime(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		now := b.now()
		b.ok("/v1/add", fmt.Sprintf(`{"key":"k","n":3,"ts":%d}`, now-2*60*minute))
		b.ok("/v1/add", fmt.Sprintf(`{"key":"k","n":4,"ts":%d}`, now+1000))
		if got := b.count("k", "3h"); got.Max != 3 {
			t.Errorf("the early ones are not here yet: %+v, want 3", got)
		}
		b.mono.Add(int64(1001 * time.Millisecond))
		if got := b.count("k", "3h"); got.Max != 7 {
			t.Errorf("late and early: %+v, want 7", got)
		}
		if got := b.count("k", "1h"); got.Max != 4 {
			t.Errorf("the last hour: %+v, want 4", got)
		}
		if got := b.count("k", "2h", now-60*minute); got.Max != 3 {
			t.Errorf("an hour ago: %+v, want 3", got)
		}
		for name, ts := range map[string]int64{"in the future": now + 5000,
			"farther back": now - 25*60*minute} {
			for _, call := range []string{"add", "acquire"} {
				a := b.post("/v1/"+call,
					fmt.Sprintf(`{"key":"k","ts":%d,"limits":[{"window":"1m","max":5}]}`, ts))
				if a.Status != http.StatusUnprocessableEntity ||
					!strings.HasPrefix(a.Detail, "ts: ") || !strings.Contains(a.Detail, name) {
					t.Errorf("%s at %d: %d %q", call, ts-now, a.Status, a.Detail)
				}
			}
			if a := b.get("/v1/count", "key", "k", "window", "1m", "at",
				fmt.Sprint(ts)); a.Status != http.StatusUnprocessableEntity ||
				!strings.HasPrefix(a.Detail, "at: ") {
				t.Errorf("count at %d: %d %q", ts-now, a.Status, a.Detail)
			}
		}
		if got := b.count("k", "24h"); got.Max != 7 {
			t.Errorf("a refused event was counted: %+v", got)
		}
	})
}

// TestBadInputNeverCounts sends requests that are each wrong in one way, and checks that nothing
// was counted.
func TestBadInputNeverCounts(t *testing.T) {
	type call struct{ path, body, want string }
	const limits = `"limits":[{"window":"1m","max":100}]`
	calls := []call{
		{"add", ``, ""},
		{"add", `{"key":"k"`, ""},
		{"add", `{"key":"k"}{"key":"k"}`, ""},
		{"add", `{"key":"k"},`, ""},
		{"add", `[{"key":"k"}]`, ""},
		{"add", `{"key":"k","n":01}`, ""},
		{"add", `{"key":"k","n":NaN}`, ""},
		{"add", "{\"key\":\"k\n\"}", ""},
		{"add", "{\"key\":\"\xff\"}", ""},
		{"add", `{"n":1}`, "key: "},
		{"add", `{"key":""}`, "key: "},
		{"add", `{"key":null}`, "key"},
		{"add", `{"key":7}`, "key"},
		{"add", `{"key":"` + strings.Repeat("k", 257) + `"}`, "key: "},
		{"add", `{"key":"a\u0000b"}`, "key: "},
		{"add", `{"key":"k","n":0}`, "n: "},
		{"add", `{"key":"k","n":1.5}`, "n"},
		{"add", `{"key":"k","n":"1"}`, "n"},
		{"add", `{"key":"k","n":2147483648}`, "n: "},
		{"add", `{"key":"k","n":-2147483648}`, "n: "},
		{"add", `{"key":"k","n":99999999999999999999}`, "n"},
		{"add", `{"key":"k","N":1}`, "N: "},
		{"add", `{"key":"k","key":"k"}`, "key: "},
		{"add", `{"key":"k","ts":-1}`, "ts: "},
		{"add", `{"key":"k","ts":12}`, "ts: "},
		{"add", `{"key":"k","ack":"disk"}`, "ack: "},
		{"add", `{"key":"k","limits":[{"window":"26h","max":1}]}`, "limits[0].window: "},
		{"add", `{"key":"k","limits":[{"window":"month","max":1}]}`, "limits[0].window: "},
		{"add", `{"key":"k","limits":[{"window":"day@Nowhere","max":1}]}`, "limits[0].window: zone: "},
		{"acquire", `{"key":"k","limits":[{"window":"day","zone":"Mars","max":9}]}`,
			"limits[0].zone: "},
		{"acquire", `{"key":"k","limits":[{"window":"month","anchor":32,"max":9}]}`,
			"limits[0].anchor: "},
		{"add", `{"key":"k","limits":[{"window":"0s","max":1}]}`, "limits[0].window: "},
		{"add", `{"key":"k","limits":[{"window":"1m"}]}`, "limits[0].max: "},
		{"add", `{"key":"k","limits":[{"max":1}]}`, "limits[0].window: "},
		{"add", `{"key":"k","checks":[]}`, "checks: "},
		{"acquire", `{"key":"k"}`, "limits: "},
		{"acquire", `{"key":"k","limits":[]}`, "limits: "},
		{"acquire", `{"key":"k","n":-1,` + limits + `}`, "n: "},
		{"acquire", `{"key":"k","limits":[{"window":"1m","max":-1}]}`, "limits[0].max: "},
		{"acquire", `{"key":"k","limits":[{"window":"1m","max":9},{"window":"1 minute","max":9}]}`,
			"limits[1].window: "},
		{"acquire", `{"key":"k","limits":[{"window":"1m","max":9,"burst":1}]}`,
			"limits[0].burst: "},
		{"acquire", `{"key":"k",` + limits + `,"checks":[{"key":"k",` + limits + `}]}`, "checks: "},
		{"acquire", `{"checks":[{"key":"k",` + limits + `},{"key":"k"}]}`, "checks[1].limits: "},
		{"acquire", `{"checks":[{"key":"k",` + limits +
			`},{"key":"k","limits":[{"window":"26h","max":1}]}]}`, "checks[1].limits[0].window: "},
		{"acquire", `{"checks":[]}`, "checks: "},
		{"reset", `{"key":"k","n":1}`, "n: "},
		{"reset", `{}`, "key: "},
		{"batch", `{"ops":[{"op":"add","key":"k"}`, ""},
		{"batch", `{"ops":{"op":"add","key":"k"}}`, "ops"},
	}
	each(t, true, func(t *testing.T, b *bed) {
		b.ok("/v1/add", `{"key":"k","n":7}`)
		for _, c := range calls {
			a := b.post("/v1/"+c.path, c.body)
			if a.Status != 400 && a.Status != 422 {
				t.Errorf("%s %q: status %d", c.path, c.body, a.Status)
			}
			if c.want != "" && !strings.Contains(a.Detail, c.want) {
				t.Errorf("%s %q: %q does not name %q", c.path, c.body, a.Detail, c.want)
			}
			if got := b.count("k", "24h"); got.Max != 7 {
				t.Fatalf("%s %q: counted: %+v", c.path, c.body, got)
			}
		}
		a := b.ok("/v1/batch",
			`{"ops":[{"op":"add"},{"op":"sub","key":"k"},{"key":"k"},{"op":"add","key":"k","n":0}]}`)
		for i, want := range []string{"key: ", "op: ", "op: ", "n: "} {
			if i >= len(a.Results) || a.Results[i].Error == nil ||
				!strings.Contains(a.Results[i].Error.Detail, want) {
				t.Errorf("operation %d of a batch: %+v does not name %q", i, a.Results, want)
			}
		}
		big := b.post("/v1/add", fmt.Sprintf(`{"key":"k","ns":%q}`, strings.Repeat("n", 70_000)))
		if big.Status != 413 || b.count("k", "24h").Max != 7 {
			t.Errorf("a large body: %d %s", big.Status, big.Detail)
		}
	})
}
