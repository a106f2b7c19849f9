package httpapi_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/companions"
)

// banning is a service that bans some keys, and records the rules of each call.
type banning struct {
	*fake
	held  map[string]bool
	known []twotier.Banned
	rules [][]twotier.BanRule
	reset []string
}

func (b *banning) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	b.rules = append(b.rules, append([]twotier.BanRule(nil), op.Rules...))
	err := b.fake.Do(ctx, op, res)
	for _, r := range op.Rules {
		if b.held[string(op.Checks[r.Check].Key)] {
			res.Allowed, res.RetryAfter = false, 500_000
			res.Checks[r.Check].Refused, res.Checks[r.Check].RetryAfter = true, 500_000
			res.Bans = append(res.Bans, twotier.BanResult{Check: r.Check, Rule: r.Rule, Until: 9,
				Started: string(op.Checks[r.Check].Key) == "new"})
		}
	}
	return err
}

// DoAll also decides about bans themselves.
func (b *banning) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		c := &ops[i].Checks[0]
		if _, key, ok := strings.Cut(string(c.Key), "/"); ok && twotier.Companion(c.NS) != "" {
			res[i].Allowed = !b.held[key]
			res[i].RetryAfter = int64(len(key))
			res[i].AddCheck().Limits = []twotier.LimitResult{{Hi: 9}}
		} else {
			res[i].Err = b.Do(ctx, &ops[i], &res[i])
		}
	}
}

func (b *banning) Bans(_ context.Context, ns, name string, limit int) []twotier.Banned {
	if ns == "" && name == "" {
		return b.known[:min(limit, len(b.known))]
	}
	return []twotier.Banned{{NS: ns, Rule: name, Key: "new"}}
}

func (b *banning) Reset(_ context.Context, ns, key []byte) error {
	b.reset = append(b.reset, string(ns)+" "+string(key))
	return nil
}

// banningServer returns a server that bans the keys old and new.
func banningServer(t *testing.T) (*httpapi.Server, *banning) {
	b := &banning{fake: newFake(), held: map[string]bool{"old": true, "new": true,
		"user=old": true}}
	s := serverOf(t, httpapi.Options{Service: b, Rules: testRules{}})
	return s, b
}

// TestBansAreShown looks for bans in the answers of acquires. Only rules that are on ban a key, and
// only the keys that they judge.
func TestBansAreShown(t *testing.T) {
	s, b := banningServer(t)
	strict := twotier.BanRule{Rule: "strict", Window: 600_000}
	at := func(check, from, to int) (r twotier.BanRule) {
		r = strict
		r.Check, r.From, r.To = check, from, to
		return r
	}
	for _, test := range []struct {
		path, body, want string
		rules            []twotier.BanRule
	}{
		{"acquire", `{"key":"old","rules":["strict"]}`, `"refused_by":["strict/ban"],"bans":[` +
			`{"rule":"strict","key":"old","until":9}],"retry_after_ms":500000`,
			[]twotier.BanRule{at(0, 0, 2)}},
		{"acquire", `{"key":"new","limits":[{"window":"1m","max":9}],"rules":["login","strict"]}`,
			`"refused_by":[],"bans":[{"rule":"strict","key":"new","until":9,"started":true}]`,
			[]twotier.BanRule{at(0, 3, 5)}},
		{"acquire", `{"checks":[{"key":"a","rules":["login"]},{"key":"old","rules":["strict"]}]}`,
			`"refused_by":["checks[1].strict/ban"],"bans":[{"rule":"strict","key":"old"`,
			[]twotier.BanRule{at(1, 0, 2)}},
		{"acquire", `{"key":"old","rules":["strict-off","login"]}`, `"allowed":true`, nil},
		{"add", `{"key":"old","rules":["strict"]}`, `"over":`, nil},
		{"batch", `{"ops":[{"op":"acquire","key":"a","rules":["login"]},{"op":"acquire","n":0,` +
			`"key":"old","rules":["strict"]},{"op":"acquire","key":"old","rules":["strict"]}]}`,
			`"strict/ban"],"bans":[{"rule":"strict"`, []twotier.BanRule{at(0, 0, 2)}},
	} {
		got := string(call(s, "POST /v1/"+test.path, test.body).Response.Body())
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %s", test.body, got, test.want)
		}
		if last := b.rules[len(b.rules)-1]; !reflect.DeepEqual(last, test.rules) {
			t.Errorf("%s: asked by %+v, want %+v", test.body, last, test.rules)
		}
	}
	res := &forward(s, "1.2.3.4:5", "rule=strict&key=User", "User: old").Response
	if res.StatusCode() != 429 || string(res.Header.Peek("Retry-After")) != "500" {
		t.Errorf("forward-auth: %d %s", res.StatusCode(), res.Header.String())
	}
	// The limits have room, and the headers show none.
	if got := string(res.Header.Peek("RateLimit")); !strings.Contains(got, ";r=0;t=500") ||
		strings.Contains(got, ";r=1") || strings.Contains(got, ";r=3") {
		t.Errorf("RateLimit: %s", got)
	}
}

// TestBansAreListed lists bans if they are active under the rules in force, and lifts them.
func TestBansAreListed(t *testing.T) {
	s, b := banningServer(t)
	for i, key := range []string{"new", "over", "old"} {
		b.known = append(b.known, twotier.Banned{NS: "default", Rule: "strict", Key: key},
			twotier.Banned{NS: "elsewhere", Rule: "strict", Key: key},
			twotier.Banned{NS: "default", Rule: []string{"login", "gone", "strict-off"}[i],
				Key: key})
	}
	one := func(key string) string {
		return fmt.Sprintf(`{"ns":"default","rule":"strict","key":%q,"until":9,"retry_after_ms":3}`,
			key)
	}
	for query, want := range map[string]string{
		"":                                   `{"bans":[` + one("new") + "," + one("old") + `],"rules`,
		"?n=1":                               `{"bans":[` + one("new") + `],"rules_version":7}`,
		"?rule=strict":                       `{"bans":[` + one("new") + `],"rules_version":7}`,
		"?rule=strict&key=old":               `{"bans":[` + one("old") + `],"rules_version":7}`,
		"?rule=strict&key=over":              `{"bans":[],"rules_version":7}`,
		"?key=old":                           `rule: missing`,
		"?rule=strict&ns=sms":                `rule strict counts in namespace default`,
		"?rule=nobody":                       `there is no rule \"nobody\"`,
		"?n=1001":                            `want 1 to 1000`,
		"?rule=strict&key=" + "a%00":         `key: want 1 to 256 bytes`,
		"?rule=strict&by=count":              `bans has ns, rule, key and n`,
		"?ns=%20":                            `ns: want 1 to 64`,
		"?ns=default&rule=login&key=old&n=1": `{"bans":[],"rules_version":7}`,
	} {
		if got := string(call(s, "GET /v1/bans"+query, "").Response.Body()); !strings.Contains(got,
			want) {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for body, want := range map[string]string{
		`{"rule":"strict","key":"old"}`:                `"key":"old","lifted":true}`,
		`{"key":"over","rule":"strict"}`:               `"key":"over","lifted":false}`,
		`{"rule":"strict"}`:                            `key: missing`,
		`{"key":"old"}`:                                `rule: missing`,
		`{"rule":"nobody","key":"old"}`:                `there is no rule`,
		`{"rule":"strict","key":"old","key":"new"}`:    `key: given twice`,
		`{"rule":"strict","key":"old","ns":"default"}`: `unban has rule and key`,
	} {
		if got := string(call(s, "POST /v1/unban", body).Response.Body()); !strings.Contains(got,
			want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if len(b.reset) != 2 || !strings.HasPrefix(b.reset[0], "@bans/default strict/o") {
		t.Errorf("reset %q", b.reset)
	}
	if _, ok := any(b).(httpapi.Banner); !ok {
		t.Error("the service lists no bans")
	}
	q := companions.StatusOp([]byte("sms"), "strict", []byte("k"), 5)
	if !q.DryRun || string(q.Checks[0].NS) != "@bans/sms" || q.Checks[0].Limits[0].Window != 5 {
		t.Errorf("asked %+v", q)
	}
}

// changingRules are the rules of testRules with a variable version.
type changingRules struct {
	testRules
	version int64
}

func (r *changingRules) Rules() *twotier.RuleSet {
	return r.testRules.Rules().Numbered(r.version)
}

// TestBansAreOfTheRulesInForce reuses the memory of a request after the rules have changed.
func TestBansAreOfTheRulesInForce(t *testing.T) {
	r := &changingRules{}
	s := serverOf(t, httpapi.Options{Service: &banning{fake: newFake()}, Rules: r})
	for r.version = 1; r.version < 20; r.version++ {
		answer := string(call(s, "GET /v1/bans?rule=strict&key=new", "").Response.Body())
		if want := fmt.Sprintf(`"rules_version":%d`, r.version); !strings.Contains(answer, want) {
			t.Errorf("%s, want %s", answer, want)
		}
	}
}
