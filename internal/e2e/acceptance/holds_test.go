package acceptance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
)

// settled is the answer to a settlement.
type settled struct {
	Settled, Repeated, Late bool

	Over   []string
	Detail string
	status int
}

func (b *bed) settle(body string) (s settled) {
	b.t.Helper()
	resp, err := http.Post(b.base+"/v1/settle", "application/json", strings.NewReader(body))
	must.Succeed(b.t, err)
	defer resp.Body.Close()
	must.Succeed(b.t, json.NewDecoder(resp.Body).Decode(&s))
	s.status = resp.StatusCode
	return s
}

// to moves the driven clock to ms, in unix milliseconds.
func (b *bed) to(ms int64) { b.mono.Add((ms - b.now()) * int64(time.Millisecond)) }

// hold acquires with a hold, and returns its id.
func (b *bed) hold(body string) string {
	b.t.Helper()
	a := b.ok("/v1/acquire", body)
	if !a.Allowed || a.Hold == "" {
		b.t.Fatalf("%s: %+v", body, a)
	}
	return a.Hold
}

// TestHoldIsSettledOnce reserves an estimate for two keys, and settles them with the real number:
// in the buckets of the hold, once.
func TestHoldIsSettledOnce(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		id := b.hold(`{"checks":[{"key":"team","n":800,"limits":[{"window":"1m","max":5000}]},
			{"key":"ann","n":800,"limits":[{"window":"1m","max":1000}]}],"hold":"90s"}`)
		b.mono.Add(int64(30 * time.Second))
		for i := range 3 {
			s := b.settle(fmt.Sprintf(`{"hold":%q,"n":1234}`, id))
			if !s.Settled || s.Repeated != (i > 0) ||
				!slices.Equal(s.Over, []string{"checks[1].limits[0]"}) {
				t.Fatalf("settlement %d: %+v", i, s)
			}
			for _, key := range []string{"team", "ann"} {
				if got := b.count(key, "1m"); got.Min != 1234 || got.Max != 1234 {
					t.Errorf("settlement %d: %+v of %s", i, got, key)
				}
				if got := b.count(key, "20s"); got.Max != 0 {
					t.Errorf("%+v of %s are younger than the hold", got, key)
				}
			}
		}
	})
}

// TestHoldIsReleased: events that are settled with 0 can be acquired again, and a settlement may
// name only some keys of a hold.
func TestHoldIsReleased(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		const body = `{"checks":[{"key":"a","n":3,"limits":[{"window":"1m","max":3}]},
			{"key":"b","n":2,"limits":[{"window":"1m","max":9}]}],"hold":"1m"}`
		id := b.hold(body)
		if a := b.ok("/v1/acquire", body); a.Allowed || a.Hold != "" {
			t.Errorf("%+v", a)
		}
		s := b.settle(fmt.Sprintf(`{"hold":%q,"checks":[{"key":"a","n":0}]}`, id))
		if !s.Settled || s.Repeated || s.Over != nil {
			t.Errorf("%+v", s)
		}
		if x, y := b.count("a", "1m").Max, b.count("b", "1m").Max; x != 0 || y != 2 {
			t.Errorf("%d and %d, want 0 and 2", x, y)
		}
		b.hold(body)
	})
}

// TestHoldOfNothing: a hold of no events is settled like any other.
func TestHoldOfNothing(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		id := b.hold(`{"key":"k","n":0,"limits":[{"window":"1m","max":3}],"hold":"1m"}`)
		b.mono.Add(int64(10 * time.Second))
		for i := range 2 {
			if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":4}`, id)); !s.Settled ||
				s.Repeated != (i > 0) || !slices.Equal(s.Over, []string{"limits[0]"}) {
				t.Errorf("%+v", s)
			}
		}
		if x, y := b.count("k", "1m").Max, b.count("k", "5s").Max; x != 4 || y != 0 {
			t.Errorf("%d events, %d of them young", x, y)
		}
	})
}

// TestLeasesBoundWhatIsOpen: at most so many are open, each until it is settled, renewed or over.
func TestLeasesBoundWhatIsOpen(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		const body = `{"key":"ann","limits":[{"window":"1h","max":100},{"concurrent":2}],
			"hold":"10s"}`
		end := twotier.LeaseEnd(b.now(), 10_000)
		first := b.hold(body)
		b.mono.Add(int64(time.Second))
		second := b.hold(body)
		b.mono.Add(int64(time.Second))
		a := b.ok("/v1/acquire", body)
		if a.Allowed || a.RetryAfter != end-b.now() ||
			!slices.Equal(a.RefusedBy, []string{"concurrent"}) || a.Limits[1].Open != 2 ||
			!a.Limits[1].Refused || a.Hold != "" {
			t.Errorf("%+v", a)
		}
		if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":1}`, first)); !s.Settled || s.Repeated {
			t.Errorf("%+v", s)
		}
		end = twotier.LeaseEnd(b.now(), 10_000)
		third := b.hold(body)
		if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":1}`, first)); !s.Repeated {
			t.Errorf("%+v", s)
		}
		if a := b.ok("/v1/acquire", body); a.Allowed {
			t.Errorf("a lease was returned twice: %+v", a)
		}
		renewed := b.ok("/v1/renew", fmt.Sprintf(`{"hold":%q,"for":"1m"}`, second))
		if renewed.Until != twotier.LeaseEnd(b.now(), 60_000) || renewed.Hold == second {
			t.Errorf("%+v", renewed)
		}
		if a := b.post("/v1/renew", fmt.Sprintf(`{"hold":%q,"for":"1m"}`, second)); a.Status !=
			http.StatusGone {
			t.Errorf("renewed twice: %+v", a)
		}
		if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":9}`, second)); s.status != http.StatusGone ||
			!strings.Contains(s.Detail, "renewed") {
			t.Errorf("%+v", s)
		}
		b.to(end - 1)
		if a := b.ok("/v1/acquire", body); a.Allowed || a.RetryAfter != 1 {
			t.Errorf("%+v", a)
		}
		b.to(end) // the third is over
		if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":1}`, third)); !s.Settled || !s.Late {
			t.Errorf("%+v", s)
		}
		b.hold(body)
		if got := b.count("ann", "1h").Max; got != 4 {
			t.Errorf("%d events, want 4", got)
		}
		if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":0}`, renewed.Hold)); !s.Settled {
			t.Errorf("%+v", s)
		}
		b.hold(body)
	})
}

// TestHoldsAreReleased: a hold that nobody settles counts nothing from its end on, once, unless it
// was settled or renewed before.
func TestHoldsAreReleased(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		hold := func(key string) string {
			t.Helper()
			return b.hold(fmt.Sprintf(`{"checks":[
				{"key":%q,"n":5,"limits":[{"window":"1h","max":9}]},
				{"key":"all","n":5,"limits":[{"window":"1h","max":99},{"concurrent":4}]}],
				"hold":"30s","on_expiry":"release"}`, key))
		}
		b.ok("/v1/add", `{"key":"all","n":3}`)
		end := twotier.LeaseEnd(b.now(), 30_000)
		forgotten, settled, renewed := hold("a"), hold("b"), hold("c")
		if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":7}`, settled)); !s.Settled {
			t.Errorf("%+v", s)
		}
		renewal := b.ok("/v1/renew", fmt.Sprintf(`{"hold":%q,"for":"2m"}`, renewed))
		counts := func() (counts [4]int64) {
			for i, key := range []string{"a", "b", "c", "all"} {
				counts[i] = b.count(key, "1h").Max
			}
			return counts
		}
		b.to(end - 1)
		time.Sleep(300 * time.Millisecond) // several ticks
		if got, want := counts(), [4]int64{5, 7, 5, 20}; got != want {
			t.Errorf("%d before the end, want %d", got, want)
		}
		b.to(end + 100)
		eventually(t, func() bool { return counts() == [4]int64{0, 7, 5, 15} })
		for i := range 2 {
			s := b.settle(fmt.Sprintf(`{"hold":%q,"n":2}`, forgotten))
			if !s.Settled || !s.Late || s.Repeated != (i > 0) {
				t.Errorf("%+v", s)
			}
		}
		b.to(renewal.Until + 100)
		eventually(t, func() bool { return counts() == [4]int64{2, 7, 0, 12} })
		for range 4 { // none is open
			hold("d")
			b.mono.Add(int64(time.Minute))
			eventually(t, func() bool { return b.count("d", "2h").Max == 0 })
		}
	})
}

// eventually waits until something holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it does not come true")
}

// TestHoldOutlivesItsNamespace: the events of a hold are older than its namespace covers when the
// hold is settled. The settlement counts nothing, but ends the hold, once.
func TestHoldOutlivesItsNamespace(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		const body = `{"key":"k","ns":"short","n":5,"limits":[{"window":"5s","max":9},
			{"concurrent":1}],"hold":"1m"}`
		id := b.hold(body)
		b.mono.Add(int64(30 * time.Second))
		if a := b.ok("/v1/acquire", body); a.Allowed {
			t.Errorf("%+v", a)
		}
		for i := range 2 {
			s := b.settle(fmt.Sprintf(`{"hold":%q,"n":7}`, id))
			if !s.Settled || s.Repeated != (i > 0) || s.Over != nil {
				t.Errorf("%+v", s)
			}
		}
		if a := b.ok("/v1/acquire", body); !a.Allowed || a.Limits[0].Remaining != 4 {
			t.Errorf("%+v", a)
		}
	})
}

// TestWrongHolds: each mistake gets its own status, and counts nothing.
func TestWrongHolds(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		end := twotier.LeaseEnd(b.now(), 60_000)
		const invalid = http.StatusUnprocessableEntity
		id := b.hold(`{"key":"k","n":5,"limits":[{"window":"1m","max":9}],"hold":"1m"}`)
		for body, want := range map[string]int{
			`{"hold":"none","n":1}`:                                        http.StatusNotFound,
			`{"hold":"` + id[:8] + `AAAA` + id[12:] + `","n":1}`:           http.StatusForbidden,
			`{"hold":"` + id + `","n":-1}`:                                 invalid,
			`{"hold":"` + id + `"}`:                                        invalid,
			`{"hold":"` + id + `","checks":[{"key":"x","n":1}]}`:           invalid,
			`{"hold":"` + id + `","n":1,"checks":[{"key":"k","n":1}]}`:     invalid,
			`{"hold":"` + id + `","checks":[{"key":"k","n":1,"other":1}]}`: invalid,
			`{"hold":"` + id + `","checks":[{"key":"k","n":1,"n":2}]}`:     invalid,

			`{"hold":"` + id + `","checks":[{"key":"k","n":1},{"key":"k","n":2}]}`: invalid,
		} {
			if s := b.settle(body); s.status != want || s.Detail == "" {
				t.Errorf("%s: %+v, want %d", body, s, want)
			}
		}
		for body, want := range map[string]string{
			`{"key":"k","limits":[{"concurrent":1}]}`:                           "hold",
			`{"key":"k","limits":[{"concurrent":0}],"hold":"1m"}`:               "concurrent",
			`{"key":"k","limits":[{"concurrent":1,"max":2}],"hold":"1m"}`:       "concurrent",
			`{"key":"k","limits":[{"window":"1m","max":9}],"hold":"25h"}`:       "hold",
			`{"key":"k","limits":[{"window":"1m","max":9}],"hold":"1m","ts":1}`: "hold",
			`{"key":"k","limits":[{"window":"1m","max":9}],"hold":90}`:          "hold",

			`{"key":"k","rules":["login"],"on_expiry":"release"}`:                 "on_expiry",
			`{"key":"k","limits":[{"concurrent":1}],"on_expiry":"-","hold":"1m"}`: "on_expiry",
		} {
			a := b.post("/v1/acquire", body)
			if a.Status/100 != 4 || !strings.Contains(a.Detail, want) {
				t.Errorf("%s: %+v, want an error about %s", body, a, want)
			}
		}
		if a := b.post("/v1/batch", `{"ops":[{"op":"acquire","key":"k","hold":"1m",
			"limits":[{"window":"1m","max":9}]}],"quiet":true}`); a.Status != invalid ||
			!strings.HasPrefix(a.Detail, "quiet: ") {
			t.Errorf("%+v", a)
		}
		if got := b.count("k", "1m").Max; got != 5 {
			t.Errorf("%d events, want 5", got)
		}
		b.to(end)
		if a := b.post("/v1/renew", `{"hold":"`+id+`","for":"1m"}`); a.Status != http.StatusGone {
			t.Errorf("%+v", a)
		}
		b.to(end + 600_000)
		if s := b.settle(`{"hold":"` + id + `","n":1}`); s.status != http.StatusGone ||
			!strings.Contains(s.Detail, "add the difference") {
			t.Errorf("%+v", s)
		}
	})
}

// TestRulesOnOpenHolds: rules limit the number of open holds, alone and beside windows, each under
// its own name. One in shadow refuses nothing, not even an acquire without a hold.
func TestRulesOnOpenHolds(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		const both = `{"key":"k","rules":["calls","call","watched"],"hold":"1m"}`
		first := b.hold(both)
		a := b.ok("/v1/acquire", both)
		if a.Allowed || !slices.Equal(a.RefusedBy, []string{"call/concurrent"}) ||
			a.RetryAfter != twotier.LeaseEnd(b.now(), 60_000)-b.now() || len(a.Limits) != 4 {
			t.Errorf("%+v", a)
		}
		for i, want := range []figure{{Concurrent: 2, Rule: "calls"},
			{Concurrent: 1, Refused: true, Rule: "call"},
			{Concurrent: 1, Refused: true, Rule: "watched", Shadow: true}} {
			want.Open, want.Remaining = 1, max(0, want.Concurrent-1)
			if i+1 < len(a.Limits) && a.Limits[i+1] != want {
				t.Errorf("limit %d: %+v, want %+v", i+1, a.Limits[i+1], want)
			}
		}
		second := b.hold(`{"key":"k","rules":["calls","watched"],"hold":"1m"}`)
		if a := b.ok("/v1/acquire", `{"key":"k","rules":["calls"],"hold":"1m"}`); a.Allowed ||
			!slices.Equal(a.RefusedBy, []string{"calls/concurrent"}) {
			t.Errorf("%+v", a)
		}
		for _, id := range []string{first, second} {
			if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":2}`, id)); !s.Settled {
				t.Errorf("%+v", s)
			}
		}
		if s := b.settle(fmt.Sprintf(`{"hold":%q,"n":2}`, first)); !slices.Equal(s.Over,
			[]string{"calls"}) {
			t.Errorf("%+v", s)
		}
		if a := b.ok("/v1/acquire", `{"key":"k","rules":["watched"]}`); !a.Allowed {
			t.Errorf("%+v", a)
		}
		a = b.post("/v1/acquire", `{"key":"k","rules":["call"]}`)
		if a.Status != http.StatusUnprocessableEntity ||
			!strings.Contains(a.Detail, "hold: missing") {
			t.Errorf("%+v", a)
		}
		if a := b.get("/v1/forward-auth", "rule", "call", "key", "ip"); a.Status !=
			http.StatusUnprocessableEntity || !strings.Contains(a.Detail, "needs a hold") {
			t.Errorf("%+v", a)
		}
	})
}
