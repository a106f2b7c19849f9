package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/testing/must"
)

// explain explains a key, or the refusal with an id.
func (b *bed) explain(field, value string) (e explain.Explanation) {
	b.t.Helper()
	resp, err := http.Get(b.base + "/v1/explain?" + field + "=" + url.QueryEscape(value))
	must.Succeed(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(b.t, err)
	if resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s: %d %s", field, value, resp.StatusCode, body)
	}
	must.Succeed(b.t, json.Unmarshal(body, &e))
	return e
}

// ruleIn returns the verdict of a rule in an explanation.
func ruleIn(t *testing.T, e explain.Explanation, name string) explain.Rule {
	t.Helper()
	i := slices.IndexFunc(e.Rules, func(r explain.Rule) bool { return r.Rule == name })
	if i < 0 {
		t.Fatalf("%+v lacks rule %q", e, name)
	}
	return e.Rules[i]
}

// refuse sends an acquire that is refused, and returns the explanation of its id.
func (b *bed) refuse(body string) explain.Explanation {
	b.t.Helper()
	a := b.ok("/v1/acquire", body)
	if a.Allowed || a.ID == "" || a.Header.Get("Twotier-Refusal") != a.ID {
		b.t.Fatalf("%s: %+v", body, a)
	}
	return b.explain("id", a.ID)
}

// TestRefusalsByLimitsAreExplained: the limits of a request, which belong to no rule, and those of
// a rule: what used them up, and when they pass. They pass then, and not a millisecond before.
func TestRefusalsByLimitsAreExplained(t *testing.T) {
	for rule, judged := range map[string]string{"": `"limits":[{"window":"1m","max":3}]`,
		"login": `"rules":["login"]`} {
		t.Run("rule "+rule, func(t *testing.T) {
			each(t, true, func(t *testing.T, b *bed) { explainLimit(t, b, rule, judged) })
		})
	}
}

func explainLimit(t *testing.T, b *bed, rule, judged string) {
	acquire := func(n int, more string) answer {
		return b.ok("/v1/acquire", fmt.Sprintf(`{"key":"phone:000","n":%d,%s%s}`, n, judged, more))
	}
	start := b.now()
	acquire(2, "")
	b.mono.Add(int64(20 * time.Second))
	acquire(1, "")
	if a := acquire(1, `,"dry_run":true`); a.Allowed || a.ID != "" {
		t.Errorf("a dry run: %+v", a)
	}
	b.mono.Add(int64(10 * time.Second))
	e := b.refuse(fmt.Sprintf(`{"key":"phone:000","n":1,%s}`, judged))
	f := e.Refusal
	if f == nil || f.Rule != rule || f.Reason != "limit" || f.Window != "1m" || f.Count != 3 ||
		f.Limit != 3 || f.N != 1 || f.At != b.now() || f.Node != "acceptance" || f.Times != 1 {
		t.Errorf("%+v", f)
	}
	r := ruleIn(t, e, rule)
	if r.Passes || len(r.Windows) != 1 || e.Key != "phone:000" || e.Ban != nil {
		t.Fatalf("%+v", e)
	}
	w := r.Windows[0]
	if w.Window != "1m" || w.Count != 3 || w.Limit != 3 || w.Remaining != 0 || w.Min > 3 ||
		w.Max < 3 || len(w.Buckets) != 2 || w.Buckets[0].Count != 2 || w.Buckets[1].Count != 1 ||
		w.Buckets[0].Start > start || w.Buckets[0].Start+w.Buckets[0].WidthMS <= start {
		t.Errorf("%+v", w)
	}
	if (e.Owner == "") != (b.mode == "redis") || e.Owner != "" && e.Owner != "acceptance" {
		t.Errorf("in mode %s %q decides", b.mode, e.Owner)
	}
	b.to(r.PassesAt - 1)
	if early := ruleIn(t, b.explain("key", "phone:000"), rule); early.Passes ||
		early.PassesAt != r.PassesAt || acquire(1, `,"dry_run":true`).Allowed {
		t.Errorf("a millisecond before: %+v, want %d", early, r.PassesAt)
	}
	b.to(r.PassesAt)
	if then := ruleIn(t, b.explain("key", "phone:000"), rule); !then.Passes ||
		then.PassesAt != 0 || !acquire(1, "").Allowed {
		t.Errorf("when it should pass: %+v", then)
	}
}

// TestRefusalsByBansAreExplained: the refusal that starts a ban names its limit, and later ones
// name the ban.
func TestRefusalsByBansAreExplained(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		const body = `{"key":"eve","n":1,"rules":["strict"]}`
		for range 3 {
			b.ok("/v1/acquire", body)
		}
		first, later := b.refuse(body), b.refuse(body)
		until := b.now() + 600_000
		if f := first.Refusal; f.Reason != "limit" || f.Window != "1m" || f.Until != until {
			t.Errorf("the refusal that starts the ban: %+v", f)
		}
		if f := later.Refusal; f.Reason != "ban" || f.Rule != "strict" || f.Until != until ||
			f.RetryAfter != 600_000 {
			t.Errorf("a refusal by the ban: %+v, want the end %d", f, until)
		}
		b.mono.Add(int64(2 * time.Minute)) // the counts allow it again
		e := b.explain("key", "eve")
		if r := ruleIn(t, e, "strict"); e.Ban == nil || e.Ban.Rule != "strict" ||
			e.Ban.Until != until || r.Passes || r.PassesAt != until || r.BannedUntil != until ||
			r.Windows[0].Count != 0 {
			t.Errorf("%+v, %+v, want the end %d", e.Ban, r, until)
		}
		if r := ruleIn(t, e, "login"); !r.Passes {
			t.Errorf("another rule: %+v", r)
		}
		if len(e.Refusals) != 2 || e.Refusals[0].Times != 1 {
			t.Errorf("%+v", e.Refusals)
		}
		b.to(until)
		if e := b.explain("key", "eve"); e.Ban != nil || !ruleIn(t, e, "strict").Passes {
			t.Errorf("after the ban: %+v", e)
		}
	})
}

// TestRefusalsByOpenHoldsAreExplained, by a rule and by a limit of a request.
func TestRefusalsByOpenHoldsAreExplained(t *testing.T) {
	for rule, judged := range map[string]string{"": `"limits":[{"concurrent":1}]`,
		"call": `"rules":["call"]`} {
		t.Run("rule "+rule, func(t *testing.T) {
			each(t, true, func(t *testing.T, b *bed) {
				body := fmt.Sprintf(`{"key":"ann","n":0,"hold":"10s",%s}`, judged)
				b.hold(body)
				end := b.now() + 10_000
				e := b.refuse(body)
				if f := e.Refusal; f.Reason != "concurrent" || f.Rule != rule || f.Count != 1 ||
					f.Limit != 1 {
					t.Errorf("%+v", f)
				}
				r := ruleIn(t, e, rule)
				if r.Passes || r.Concurrent == nil || r.Concurrent.Count != 1 ||
					r.Concurrent.Limit != 1 || r.Concurrent.Remaining != 0 || r.PassesAt < end {
					t.Errorf("%+v", r)
				}
				if len(e.Holds) != 1 || e.Holds[0].Open != 1 {
					t.Errorf("%+v", e.Holds)
				}
				if w := ruleIn(t, e, "watched"); !w.Passes || !w.WouldRefuse {
					t.Errorf("in shadow: %+v", w)
				}
				b.to(r.PassesAt)
				if r := ruleIn(t, b.explain("key", "ann"), rule); !r.Passes ||
					r.Concurrent.Count != 0 {
					t.Errorf("after its end: %+v", r)
				}
			})
		})
	}
}

// TestDoorsNameTheirRefusals: forward-auth in a header, and Envoy in the headers for its client.
func TestDoorsNameTheirRefusals(t *testing.T) {
	each(t, false, func(t *testing.T, b *bed) {
		id := ""
		for range 4 {
			id = b.get("/v1/forward-auth", "rule", "login", "key", "ip").Header.
				Get("Twotier-Refusal")
		}
		if f := b.explain("id", id).Refusal; f.Door != "forward-auth" || f.Rule != "login" {
			t.Errorf("%+v", f)
		}
		id = ""
		for range 6 {
			id = b.envoyRefusal(`{"domain":"edge","descriptors":[{"entries":[
				{"key":"ip","value":"192.0.2.7"}]}]}`)
		}
		e := b.explain("id", id)
		if f := e.Refusal; f.Door != "envoy-json" || f.Key != "ip=192.0.2.7" || f.Count != 5 ||
			f.Limit != 5 || f.Window != "1m" || f.RetryAfter <= 0 {
			t.Errorf("%+v", f)
		}
		if r := ruleIn(t, e, e.Refusal.Rule); r.Passes || r.Windows[0].Count != 5 {
			t.Errorf("%+v", r)
		}
	})
}

// envoyRefusal sends a request of Envoy as JSON, and returns the id of its refusal, or "".
func (b *bed) envoyRefusal(body string) string {
	b.t.Helper()
	resp, err := http.Post(b.base+"/json", "application/json", strings.NewReader(body))
	must.Succeed(b.t, err)
	defer resp.Body.Close()
	var a struct {
		ResponseHeadersToAdd []struct{ Key, Value string }
	}
	must.Succeed(b.t, json.NewDecoder(resp.Body).Decode(&a))
	for _, h := range a.ResponseHeadersToAdd {
		if h.Key == "Twotier-Refusal" {
			return h.Value
		}
	}
	return ""
}
