package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/testing/must"
)

// forward sends a request to /v1/forward-auth from an address. Each header is "Name: value".
func forward(s *httpapi.Server, from, query string, headers ...string) *fasthttp.RequestCtx {
	ctx := new(fasthttp.RequestCtx)
	var request fasthttp.Request
	request.Header.SetMethod("PURGE")
	request.SetRequestURI("/v1/forward-auth?" + query)
	request.Header.SetHost("twotier")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Add(name, value)
	}
	ctx.Init(&request, &net.TCPAddr{IP: net.ParseIP(from), Port: 4711}, nil)
	s.Handle(ctx)
	return ctx
}

func TestForwardAuthKeys(t *testing.T) {
	const address = "203.0.113.7"
	const hashOfBob = "sha256:81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9"
	for _, tt := range []struct {
		from, query string
		headers     []string
		want        string
	}{
		{"192.0.2.7", "rule=login", nil, "192.0.2.7"},
		{"192.0.2.7", "rule=login&key=ip", []string{"X-Forwarded-For: 1.2.3.4"}, "192.0.2.7"},
		{"10.0.0.1", "rule=login&key=ip", []string{"X-Forwarded-For: 6.6.6.6, 1.2.3.4"}, "1.2.3.4"},
		{"10.0.0.1", "rule=login", []string{"X-Forwarded-For: 6.6.6.6, 1.2.3.4:99, 10.9.9.9"}, "1.2.3.4"},
		{"10.0.0.1", "rule=login", []string{"X-Forwarded-For: 1.2.3.4", "X-Forwarded-For: 10.2.2.2"}, "1.2.3.4"},
		{"10.0.0.1", "rule=login", []string{"X-Forwarded-For: 1.2.3.4, who, 10.2.2.2"}, "10.2.2.2"},
		{"10.0.0.1", "rule=login", []string{"X-Forwarded-For: 10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		{"10.0.0.1", "rule=login", nil, "10.0.0.1"},
		{"::ffff:10.0.0.1", "rule=login", []string{"X-Forwarded-For: ::ffff:1.2.3.4"}, "1.2.3.4"},
		{"2001:db8:1:2:3::4", "rule=login", nil, "2001:db8:1:2::/64"},
		{"10.0.0.1", "rule=login", []string{"X-Forwarded-For: [2001:db8::5]:443"}, "2001:db8::/64"},
		{"64:ff9b::808:808", "rule=login", nil, "8.8.8.8"},
		{"10.0.0.1", "rule=login", []string{"X-Forwarded-For: 64:ff9b::909:909"}, "9.9.9.9"},
		{"64:ff9b:1::808:808", "rule=login", nil, "8.8.8.8"},
		{"64:ff9b:1:808:8:800::", "rule=login", nil, "8.8.8.8"},
		{"2002:cb00:7107::1", "rule=login", nil, address},
		{"2002:cb00:7107:8000::1", "rule=login", nil, address},
		{"2001:0:4136:e378:8000:63bf:34ff:8ef8", "rule=login", nil, address},
		{"64:ff9c::808:808", "rule=login", nil, "64:ff9c::/64"},
		{"2001:1::7", "rule=login", nil, "2001:1::/64"},
		// An address that embeds a trusted proxy's is not trusted.
		{"2002:a00:1::1", "rule=login", []string{"X-Forwarded-For: 1.2.3.4"}, "10.0.0.1"},
		{"192.0.2.7", "rule=login&key=X-User", []string{"X-User: bob"}, "x-user=bob"},
		{"192.0.2.7", "rule=login&key=plain:X-User", []string{"X-User: bob"}, "x-user=bob"},
		{"192.0.2.7", "rule=login&key=X-User", []string{"X-User: " + address}, "x-user=" + address},
		{"192.0.2.7", "rule=login&key=X-User", []string{"X-User: x-user=bob"}, "x-user=x-user=bob"},
		{"192.0.2.7", "rule=login&key=X-User", nil, "none"},
		{"192.0.2.7", "rule=login&key=X-User", []string{"X-User: "}, "none"},
		{"192.0.2.7", "rule=login&key=X-User,ip", nil, "192.0.2.7"},
		{"192.0.2.7", "rule=login&key=X-User,X-Api-Key", []string{"X-Api-Key: \xff"},
			"x-api-key=sha256:a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89"},
		{"192.0.2.7", "rule=login&key=X-User", []string{"X-User: " + hashOfBob},
			"x-user=sha256:2caf6b1bbffb8e756c3298930b49b006355c119ccc771854e2d512e154e35f5d"},
		{"192.0.2.7", "rule=login&key=sha256:X-User", []string{"X-User: bob"}, "x-user=" + hashOfBob},
		{"192.0.2.7", "rule=login&key=sha256:ip", nil,
			"ip=sha256:37dad677cf0b3997d0f5dd0d7889f84b11002e3ca73b0ae1bdb6d7e9b46fdb8a"},
		{"192.0.2.7", "rule=login&key=Authorization", []string{"Authorization: bob"},
			"authorization=" + hashOfBob},
		{"192.0.2.7", "rule=login&key=Cookie", []string{"Cookie: bob"}, "cookie=" + hashOfBob},
		{"192.0.2.7", "rule=login&key=Proxy-Authorization", []string{"Proxy-Authorization: bob"},
			"proxy-authorization=" + hashOfBob},
		{"192.0.2.7", "rule=login&key=plain:authorization", []string{"Authorization: bob"},
			"authorization=bob"},
		{"192.0.2.7", "rule=login&key=query:user,ip", []string{"X-Forwarded-Uri: /a?b=c&user=b%20b"},
			"query:user=b b"},
		{"192.0.2.7", "rule=login&key=query:a%3Db", []string{"X-Forwarded-Uri: /a?a%3Db=c"},
			"query:a%3Db=c"},
		{"192.0.2.7", "rule=login&key=sha256:query:user", []string{"X-Forwarded-Uri: /a?user=bob"},
			"query:user=" + hashOfBob},
		{"192.0.2.7", "rule=login&key=query:user", []string{"X-Forwarded-Uri: /user"}, "none"},
	} {
		f := newFake()
		ctx := forward(newServer(t, f), tt.from, tt.query, tt.headers...)
		if code := ctx.Response.StatusCode(); code != 200 {
			t.Errorf("%+v: %d %s", tt, code, ctx.Response.Body())
		} else if got := string(f.last.Checks[0].Key); got != tt.want {
			t.Errorf("%s %s %q: key %q, want %q", tt.from, tt.query, tt.headers, got, tt.want)
		}
	}
}

func TestForwardAuthDenies(t *testing.T) {
	for query, want := range map[string]int{
		"rule=login&key=X-User": 429, "denied=403&rule=login&key=X-User": 403,
		"rule=login&key=X-User&denied=429": 429,
	} {
		s := newServer(t, newFake())
		for i := range 5 {
			ctx := forward(s, "192.0.2.7", query, "X-User: bob")
			code, h := ctx.Response.StatusCode(), &ctx.Response.Header
			if ok := i < 3; ok != (code == 200) || !ok && code != want {
				t.Errorf("%s: request %d got %d", query, i, code)
			}
			if got := string(h.Peek("RateLimit-Policy")); got !=
				`"login/1m";q=3;w=60, "login/1h";q=5;w=3600` {
				t.Errorf("%s: RateLimit-Policy %s", query, got)
			}
			if got := string(h.Peek("RateLimit")); got == "" {
				t.Errorf("%s: no RateLimit", query)
			}
			if got := h.Peek("Retry-After"); (len(got) > 0) != (code != 200) {
				t.Errorf("%s: %d with Retry-After %q", query, code, got)
			}
		}
	}
}

func TestForwardAuthSeveralRules(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	const query = "rule=login&rule=sms&rule=tight&key=X-User&rule=sms-day&key=X-Tenant&rule=off"
	ctx := forward(s, "192.0.2.7", query, "X-User: bob", "X-Tenant: shop")
	if code := ctx.Response.StatusCode(); code != 200 {
		t.Fatalf("%d %s", code, ctx.Response.Body())
	}
	var got []string
	for _, c := range f.last.Checks {
		got = append(got, string(c.NS)+"/"+string(c.Key)+"/"+strings.Repeat("l", len(c.Limits)))
	}
	const want = "default/x-user=bob/lll sms/x-user=bob/l sms/x-tenant=shop/l default/192.0.2.7/l"
	if strings.Join(got, " ") != want {
		t.Errorf("checks %s, want %s", got, want)
	}
	forward(s, "192.0.2.7", "key=X-User&rule=login&rule=sms&key=ip&rule=sms-day", "X-User: eve")
	if keys := f.last.Checks; len(keys) != 3 || string(keys[0].Key) != "192.0.2.7" ||
		string(keys[2].Key) != "x-user=eve" {
		t.Errorf("a key in front of the rules: %v", keys)
	}
	// A rule in shadow is reported in the body, and neither refuses nor shows in headers.
	ctx = forward(s, "192.0.2.7", "rule=tight&key=X-User", "X-User: bob")
	header := ctx.Response.Header.Peek("RateLimit")
	if code := ctx.Response.StatusCode(); code != 200 || len(header) > 0 ||
		!strings.Contains(string(ctx.Response.Body()), `"refused":true,"rule":"tight","shadow":true`) {
		t.Errorf("%d %s %s", code, ctx.Response.Body(), ctx.Response.Header.String())
	}
}

func TestForwardAuthBadQueries(t *testing.T) {
	s := newServer(t, newFake())
	for query, want := range map[string]string{
		"":                             "rule: missing",
		"rule=nobody":                  `rule: there is no rule \"nobody\"`,
		"key=ip&key=X-User&rule=login": "key: given twice for the same rules",
		"rule=login&key=ip&key=X-User": "key: given twice for the same rules",
		"rule=login&key=":              "key: want ip, the name of a header",
		"rule=login&key=a:b":           "key: want ip, the name of a header",
		"rule=login&key=query:":        "key: want ip, the name of a header",
		"rule=login&key=sha256:":       "key: want ip, the name of a header",
		"rule=login&key=plain:a:b":     "key: want ip, the name of a header",
		"rule=login&denied=500":        "denied: want 429 or 403",
		"rule=login&n=2": "n: unknown parameter; forward-auth has rule, key and " +
			"denied",
		strings.Repeat("rule=login&", 17): "rule: want at most 16 rules",
	} {
		status(t, forward(s, "192.0.2.7", query), 422, want)
	}
}

// TestForwardAuthFromAPage sends requests like a page whose author has pointed its name at this
// server, from a browser on this machine: with any header, but the Host of the page. Trusted
// proxies on other machines pass on the Host that they got, and a name without a dot is that of an
// upstream.
func TestForwardAuthFromAPage(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"),
		netip.MustParsePrefix("10.0.0.0/8")}
	for _, tt := range []struct {
		from, host string
		want       int
	}{
		{"127.0.0.1", "evil.example", 403},
		{"127.0.0.1", "evil.example:8080", 403},
		{"192.0.2.7", "evil.example", 403},
		{"10.0.0.1", "shop.example", 200},
		{"127.0.0.1", "127.0.0.1:8080", 200},
		{"127.0.0.1", "localhost", 200},
		{"127.0.0.1", "twotier", 200},
		{"127.0.0.1", "counter.example", 200},
	} {
		for _, method := range []string{"GET", "POST", "HEAD"} {
			s := serverOf(t, httpapi.Options{Rules: testRules{}, TrustedProxies: proxies,
				Hosts: []string{"counter.example"}})
			ctx := new(fasthttp.RequestCtx)
			var request fasthttp.Request
			request.Header.SetMethod(method)
			request.SetRequestURI("/v1/forward-auth?rule=login")
			request.Header.SetHost(tt.host)
			request.Header.Set("X-Forwarded-For", "203.0.113.7")
			ctx.Init(&request, &net.TCPAddr{IP: net.ParseIP(tt.from), Port: 4711}, nil)
			s.Handle(ctx)
			if got := ctx.Response.StatusCode(); got != tt.want {
				t.Errorf("%s from %s to %s: %d, want %d", method, tt.from, tt.host, got, tt.want)
			}
		}
	}
}

// TestForwardAuthAnswersAsAcquire sends the same random requests in both ways, to two services.
// Rules that judge the same key in the same namespace are one check of the acquire.
func TestForwardAuthAnswersAsAcquire(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 14))
	var forwards, acquires *httpapi.Server
	namespaces := map[string]string{"sms": "sms", "sms-day": "sms"} // of the tests' rules
	codes := map[int]int{}
	for i := range 1000 {
		if i%50 == 0 { // otherwise all keys are full in the end
			forwards, acquires = newServer(t, newFake()), newServer(t, newFake())
		}
		type check struct {
			Key   string   `json:"key"`
			Rules []string `json:"rules"`
		}
		var checks []check
		var headers, query []string
		for _, at := range rnd.Perm(5)[:1+rnd.IntN(3)] {
			name := []string{"login", "sms", "sms-day", "tight", "off"}[at]
			user := rnd.IntN(4)
			header, value := fmt.Sprint("x-", user), []string{"bob", "eve"}[user%2]
			key := header + "=" + value
			query = append(query, "rule="+name+"&key="+header)
			headers = append(headers, header+": "+value)
			same := func(c check) bool {
				return c.Key == key && namespaces[c.Rules[0]] == namespaces[name]
			}
			if j := slices.IndexFunc(checks, same); j >= 0 {
				checks[j].Rules = append(checks[j].Rules, name)
			} else {
				checks = append(checks, check{key, []string{name}})
			}
		}
		body, err := json.Marshal(map[string]any{"checks": checks})
		must.Succeed(t, err)
		one := forward(forwards, "192.0.2.7", strings.Join(query, "&"), headers...)
		two := call(acquires, "POST /v1/acquire", string(body))
		var got, want struct {
			Allowed bool
			Checks  []any
		}
		if err := json.Unmarshal(one.Response.Body(), &got); err != nil {
			t.Fatalf("%q: %d %s", query, one.Response.StatusCode(), one.Response.Body())
		}
		if err := json.Unmarshal(two.Response.Body(), &want); err != nil || want.Checks == nil {
			t.Fatalf("%s: %d %s", body, two.Response.StatusCode(), two.Response.Body())
		}
		code := one.Response.StatusCode()
		codes[code]++
		if !reflect.DeepEqual(got, want) || got.Allowed != (code == 200) {
			t.Fatalf("%q: %d %s\nan acquire: %s", query, code, one.Response.Body(),
				two.Response.Body())
		}
	}
	if len(codes) != 2 || codes[200] < 100 || codes[429] < 100 {
		t.Errorf("answers by status: %v", codes)
	}
}

// limiter is a rate limiter that repeats the request in its answer.
type limiter struct {
	over bool
	err  error
}

// JSON implements [httpapi.RateLimiter].
func (l *limiter) JSON(_ context.Context, _ *twotier.Grant, body []byte) ([]byte, bool, error) {
	return []byte(`{"asked":` + string(body) + `}`), l.over, l.err
}

func TestRateLimitJSON(t *testing.T) {
	invalid := request.Failure{Kind: request.Invalid, Detail: "domain: missing"}
	for _, tt := range []struct {
		over bool
		err  error
		code int
		want string
	}{
		{false, nil, 200, `{"asked":{}}`},
		{true, nil, 429, `{"asked":{}}`},
		{false, &invalid, 422, `"detail":"domain: missing"`},
		{false, &request.Failure{Kind: request.Forbidden}, 403, `:problem:forbidden"`},
		{false, &request.Failure{Kind: request.Overload},
			429, `:overload"`},
		{false, &request.Failure{Kind: request.Unknown}, 503,
			`"outcome":"unknown"`},
		{false, errors.New("other"), 500, `:problem:internal"`},
	} {
		s := serverOf(t, httpapi.Options{Service: newFake(),
			RateLimiter: &limiter{over: tt.over, err: tt.err}})
		status(t, call(s, "POST /json", "{}"), tt.code, tt.want)
	}
	s := serverOf(t, httpapi.Options{Service: newFake()})
	status(t, call(s, "POST /json", "{}"), 404, "")
	status(t, call(newServer(t, newFake()), "POST /json?x=1", "{}"), 422, "")
}
