package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime/trace"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/token"
)

// tokens makes a store of tokens, one for each line of "name roles namespaces", and returns the
// tokens by name.
func tokens(t testing.TB, lines ...string) (*token.Store, map[string]string) {
	t.Helper()
	texts, file := map[string]string{}, ""
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		text, hash := token.New()
		texts[name] = text
		file += name + " " + hash + " " + rest + "\n"
	}
	store := new(token.Store)
	must.Succeed(t, store.Load([]byte(file)))
	return store, texts
}

// serverOf returns a server that is not listening, of a fake service unless it has one.
func serverOf(t testing.TB, o httpapi.Options) *httpapi.Server {
	t.Helper()
	if o.Service == nil {
		o.Service = newFake()
	}
	s, err := httpapi.New(o)
	must.Succeed(t, err)
	return s
}

// as makes a request with a token.
func as(s *httpapi.Server, secret, request, body string) *fasthttp.RequestCtx {
	ctx := newRequest(request, body)
	ctx.Request.Header.Del("Authorization")
	if secret != "" {
		ctx.Request.Header.Set("Authorization", "Bearer "+secret)
	}
	s.Handle(ctx)
	return ctx
}

// TestEveryRouteAsksForTheDocumentedRole tries each documented call with a token of each role, and
// without a token: the routes require the roles in the document.
func TestEveryRouteAsksForTheDocumentedRole(t *testing.T) {
	store, texts := tokens(t, "count count", "read read", "admin admin")
	doc, _ := readDocument(t)
	for path, methods := range doc.Paths {
		for method, o := range methods {
			request, body := o.example(method, path)
			if o.Security == nil {
				t.Errorf("%s does not say who may use it", path)
			}
			granted := map[string]bool{}
			for _, s := range o.Security {
				for _, role := range s["token"] {
					granted[role] = true
				}
			}
			for _, role := range []string{"", "count", "read", "admin"} {
				want := 200
				switch {
				case len(o.Security) == 0 || granted[role]:
				case role == "":
					want = 401
				default:
					want = 403
				}
				s := serverOf(t, httpapi.Options{Tokens: store, Rules: testRules{},
					Holds:       documentedHolds(),
					RateLimiter: &limiter{}, RuleBook: newRuleBook(t),
					Backtester: new(backtester)})
				status(t, as(s, texts[role], request, body), want, "")
				if _, ok := o.Responses[fmt.Sprint(want)]; !ok {
					t.Errorf("%s %s: %d is not documented", method, path, want)
				}
			}
		}
	}
}

func TestNamespacesOfATokenAreItsBounds(t *testing.T) {
	store, texts := tokens(t, "some count,read,admin login", "main count,read,admin default",
		"all count,read,admin *")
	for _, tt := range []struct{ request, body, need string }{
		{"POST /v1/add", `{"key":"k"}`, "default"},
		{"POST /v1/add", `{"key":"k","ns":"login"}`, "login"},
		{"POST /v1/add", `{"ns":"default","key":"k"}`, "default"},
		{"POST /v1/acquire", `{"key":"k","ns":"login","limits":[{"window":"1m","max":1}]}`,
			"login"},
		{"POST /v1/acquire",
			`{"checks":[{"key":"k","ns":"login","limits":[{"window":"1m","max":1}]}]}`, "login"},
		{"POST /v1/acquire",
			`{"checks":[{"key":"k","ns":"login","limits":[{"window":"1m","max":1}]},{"key":"k","limits":[{"window":"1m","max":1}]}]}`, "both"},
		{"POST /v1/reset", `{"key":"k"}`, "default"},
		{"POST /v1/reset", `{"key":"k","ns":"login"}`, "login"},
		{"GET /v1/count?key=k&window=1m", "", "default"},
		{"GET /v1/count?key=k&window=1m&ns=login", "", "login"},
		{"GET /v1/series?key=k&window=1m", "", "default"},
		{"GET /v1/series?key=k&window=1m&ns=login", "", "login"},
		{"GET /v1/top", "", "both"},
		{"GET /v1/holds?key=k", "", "default"},
		{"GET /v1/holds?key=k&ns=login", "", "login"},
		{"POST /v1/admin/mode", `{"mode":"redis"}`, "both"},
	} {
		for name, has := range map[string]string{"some": "login", "main": "default",
			"all": tt.need} {
			want := 403
			if has == tt.need {
				want = 200
			}
			f := newFake()
			ctx := as(serverOf(t, httpapi.Options{Service: f, Tokens: store}), texts[name],
				tt.request, tt.body)
			if got := ctx.Response.StatusCode(); got != want {
				t.Errorf("%s %s as %s: %d, want %d: %s", tt.request, tt.body, name, got, want,
					ctx.Response.Body())
			}
			if want == 403 && f.get("k") != 0 {
				t.Errorf("%s %s as %s was counted", tt.request, tt.body, name)
			}
		}
	}
}

// TestBatchOfManyTenants: an operation that the token does not allow does not affect the others,
// which may be on behalf of other users.
func TestBatchOfManyTenants(t *testing.T) {
	store, texts := tokens(t, "shop count login")
	f := newFake()
	s := serverOf(t, httpapi.Options{Service: f, Tokens: store})
	ctx := as(s, texts["shop"], "POST /v1/batch",
		`{"ops":[{"op":"add","key":"a","ns":"login"},{"op":"add","key":"b"},`+
			`{"op":"count","key":"c","ns":"login","window":"1m"},{"op":"add","key":"d","ns":"login"}]}`)
	var got struct {
		Results []struct {
			Key   string
			Error *struct {
				Status int
				Detail string
			}
		}
	}
	if err := json.Unmarshal(ctx.Response.Body(), &got); err != nil || len(got.Results) != 4 {
		t.Fatalf("%v %s", err, ctx.Response.Body())
	}
	for i, want := range []int{0, 403, 403, 0} {
		if e := got.Results[i].Error; (e == nil) != (want == 0) || e != nil && e.Status != want {
			t.Errorf("operation %d: %+v", i, e)
		}
	}
	if f.get("a") != 1 || f.get("b") != 0 || f.get("d") != 1 {
		t.Errorf("counted %d, %d and %d", f.get("a"), f.get("b"), f.get("d"))
	}
}

func TestWhatIsNoTokenIsRefused(t *testing.T) {
	store, texts := tokens(t, "a count")
	s := serverOf(t, httpapi.Options{Tokens: store})
	good := texts["a"]
	for _, header := range []string{"", good, "Bearer", "Bearer ", "Bearer x", "Basic " + good,
		"Bearer " + good + " ", "Bearer  " + good} {
		ctx := newRequest("POST /v1/add", `{"key":"k"}`)
		if header != "" {
			ctx.Request.Header.Set("Authorization", header)
		}
		s.Handle(ctx)
		if ctx.Response.StatusCode() != 401 ||
			string(ctx.Response.Header.Peek("WWW-Authenticate")) != "Bearer" {
			t.Errorf("%q: %d", header, ctx.Response.StatusCode())
		}
		if strings.Contains(string(ctx.Response.Body()), good) {
			t.Errorf("%q is told", header)
		}
	}
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER "} {
		status(t, call(s, "POST /v1/add", `{"key":"k"}`, "Authorization: "+scheme+good), 200, "")
	}
}

// TestAdminTokenMayDoEverything, with and without Tokens.
func TestAdminTokenMayDoEverything(t *testing.T) {
	const secret = "0123456789abcdef"
	store, texts := tokens(t, "a count")
	both := serverOf(t, httpapi.Options{Tokens: store, AdminToken: secret})
	alone := serverOf(t, httpapi.Options{AdminToken: secret})
	none := serverOf(t, httpapi.Options{})
	for _, tt := range []struct {
		name, token, request, body string
		server                     *httpapi.Server
		want                       int
	}{
		{"both", secret, "POST /v1/admin/mode", `{"mode":"redis"}`, both, 200},
		{"both", secret, "POST /v1/add", `{"key":"k"}`, both, 200},
		{"both", texts["a"], "POST /v1/admin/mode", `{"mode":"redis"}`, both, 403},
		{"both", secret + "x", "POST /v1/add", `{"key":"k"}`, both, 401},
		{"alone", "", "POST /v1/reset", `{"key":"k"}`, alone, 200},
		{"alone", "", "POST /v1/admin/mode", `{"mode":"redis"}`, alone, 401},
		{"alone", secret, "POST /v1/admin/mode", `{"mode":"redis"}`, alone, 200},
		{"none", secret, "POST /v1/admin/mode", `{"mode":"redis"}`, none, 403},
	} {
		status(t, as(tt.server, tt.token, tt.request, tt.body), tt.want, "")
	}
}

// TestOtherWayToChangeRules checks that a node without tokens names the file of --rules to senders
// of rules only.
func TestOtherWayToChangeRules(t *testing.T) {
	none := serverOf(t, httpapi.Options{RuleBook: newRuleBook(t)})
	for request, want := range map[string]bool{"PUT /v1/rules": true, "POST /v1/admin/mode": false} {
		body := string(as(none, "", request, `{}`).Response.Body())
		if !strings.Contains(body, "there are no such calls") ||
			strings.Contains(body, "change the file of --rules") != want {
			t.Errorf("%s: %s", request, body)
		}
	}
}

// TestBodiesOfStrangersAreNotRead: a large body, or message of an alleged node, is refused as soon
// as its first bytes arrive, and a chunked one before that.
func TestBodiesOfStrangersAreNotRead(t *testing.T) {
	store, _ := tokens(t, "a count")
	s, addr := open(t, httpapi.Options{Service: newFake(), Tokens: store, Peer: echo{}})
	for _, tt := range []struct {
		path, header string
		first, want  int
	}{
		{"/v1/batch", "Content-Length: 1000000", 8 << 10, 401},
		{"/v1/batch", "Transfer-Encoding: chunked", 0, 401},
		{"/peer", "Content-Type: application/x-twotier-peer\r\nContent-Length: 4000000", 8 << 10,
			403},
	} {
		request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n%s", tt.path,
			tt.header, strings.Repeat("x", tt.first))
		if code, body := send(t, addr, request); code != tt.want {
			t.Errorf("%s, %s: %d %s", tt.path, tt.header, code, body)
		}
	}
	if taken := s.Taken(); taken.Bytes != 0 {
		t.Errorf("%d bytes are accounted for", taken.Bytes)
	}
}

func TestOnlyExactPaths(t *testing.T) {
	f := newFake()
	_, addr := open(t, httpapi.Options{Service: f})
	for target, want := range map[string]int{
		"/v1/reset": 200, "http://localhost/v1/reset": 200, "http://" + addr + "/v1/reset?": 200,
		"/v1%2freset": 404, "//v1/reset": 404, "/v1//reset": 404, "/v1/./reset": 404,
		"/v1/x/../reset": 404, "/v1/reset/": 404,
		"/V1/reset": 404, "/v1/%72eset": 404, "/v1/reset;x": 404, "/v1/reset%00": 404,
		"/.//v1/reset": 404, "///v1/reset": 404,
		"//localhost/v1/reset": 404, "http://localhost": 404, "http://localhost//v1/reset": 404,
		"/v1\\reset": 404,
	} {
		for _, host := range []string{"Host: localhost\r\n", "Host: \r\n"} {
			c := dial(t, addr)
			body := `{"key":"k"}`
			fmt.Fprintf(c,
				"POST %s HTTP/1.1\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", target,
				host, len(body), body)
			if code, text := answer(t, bufio.NewReader(c)); code != want && code != 400 ||
				code == 400 && want == 200 && host != "Host: \r\n" {
				t.Errorf("%s with %q: %d, want %d: %s", target, host, code, want, text)
			}
		}
	}
}

// TestHostsAreChecked: a page from elsewhere can't make a browser read or write here by resolving
// its own host name to our address.
func TestHostsAreChecked(t *testing.T) {
	store, texts := tokens(t, "a count")
	public := "0.0.0.0:0"
	for _, tt := range []struct {
		name string
		o    httpapi.Options
		bad  bool // evil.example is accepted
		good []string
	}{
		{name: "loopback", good: []string{"localhost", "localhost:8080", "127.0.0.1:8080",
			"[::1]:8080", "10.1.2.3", "LocalHost"}},
		{name: "named", o: httpapi.Options{Hosts: []string{"counter.example"}},
			good: []string{"counter.example", "Counter.Example:80", "localhost"}},
		{name: "public and named", o: httpapi.Options{Listen: public,
			Hosts: []string{"counter.example"}}, good: []string{"counter.example", "10.1.2.3:80"}},
		{name: "public", o: httpapi.Options{Listen: public}, bad: true},
		{name: "tokens", o: httpapi.Options{Tokens: store}, bad: true},
	} {
		s := serverOf(t, tt.o)
		ask := func(host string) int {
			ctx := call(s, "POST /v1/add", `{"key":"k"}`,
				"Authorization: Bearer "+texts["a"], "Host: "+host)
			return ctx.Response.StatusCode()
		}
		for _, host := range tt.good {
			if code := ask(host); code != 200 {
				t.Errorf("%s: %s: %d", tt.name, host, code)
			}
		}
		for _, host := range []string{"evil.example", "evil.example:8080", "localhost.evil.example",
			"127.0.0.1.evil.example", "xlocalhost", "127.0.0.1x"} {
			want := 403
			if tt.bad {
				want = 200
			}
			if code := ask(host); code != want {
				t.Errorf("%s: %s: %d, want %d", tt.name, host, code, want)
			}
		}
	}
}

// TestNodesHaveNamesOfTheirOwn: messages between nodes are sealed, so any host will do.
func TestNodesHaveNamesOfTheirOwn(t *testing.T) {
	s := serverOf(t, httpapi.Options{Peer: echo{}, Hosts: []string{"counter.example"}})
	status(t, call(s, "POST /peer", "hello", "Content-Type: application/x-twotier-peer",
		"Twotier-Pass: "+pass(len("hello")), "Content-Length: 5", "Host: node-7.internal:8080"),
		200, "HELLO")
}

// TestTwoLengthsAreRefused: a second request hidden in the bytes of the first is never executed.
func TestTwoLengthsAreRefused(t *testing.T) {
	f := newFake()
	_, addr := open(t, httpapi.Options{Service: f})
	for _, header := range []string{
		"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
		"content-length: 4\r\ntransfer-encoding: CHUNKED\r\n",
		"Content-Length: 0\r\nTransfer-Encoding: identity\r\n",
		"Content-Length: 4\r\nContent-Length: 5\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: xchunked\r\n", "Transfer-Encoding : chunked\r\n",
		"Content-Length: +4\r\n", "Content-Length: 4, 4\r\n",
		"Content-Length: 4\r\nContent-Length: 4\r\n", "Content-Length: -1\r\n",
		"Content-Length: 0x4\r\n", "Content-Length: 99999999999999999999\r\n",
		"Transfer-Encoding: \x0bchunked\r\n", "Transfer-Encoding: gzip, chunked\r\n",
		"Transfer-Encoding: chunked, identity\r\n",
		"Content-Length: 4\r\nX: a\rTransfer-Encoding: chunked\r\n",
		"Content-Length: 4\r\nX: a\x00b\r\n", "Content-Length: 4\r\n: x\r\n",
		"Content-Length: 4\r\nHost: another.example\r\n",
	} {
		smuggle(t, addr, header+"\r\n0\r\n\r\n")
	}
	if f.get("smuggled") != 0 {
		t.Error("a request inside of another was carried out")
	}
}

// smuggle sends the rest of a malformed request with another one behind it: the connection ends.
func smuggle(t *testing.T, addr, rest string) {
	t.Helper()
	c := dial(t, addr)
	fmt.Fprintf(c, "POST /v1/add HTTP/1.1\r\nHost: localhost\r\n%s%s", rest,
		rawAdd(`{"key":"smuggled"}`))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must.Succeed(t, err)
	if res.StatusCode != 400 || !res.Close {
		t.Errorf("%q: %d, close %v", rest, res.StatusCode, res.Close)
	}
	res.Body.Close()
}

// TestBadChunksAreRefused: nor is a request after a malformed chunk.
func TestBadChunksAreRefused(t *testing.T) {
	f := newFake()
	_, addr := open(t, httpapi.Options{Service: f})
	for _, body := range []string{
		"-1\r\n", "FFFFFFFFFFFFFFFF1\r\n", "0x1\r\n", " 1\r\n", "1\nx\n0\n\n", "1\r\nxYY0\r\n\r\n",
		"\r\n", "1\r\nx\r\n0\r\nHost: another.example\r\n\r\n",
	} {
		smuggle(t, addr, "Transfer-Encoding: chunked\r\n\r\n"+body)
	}
	if f.get("smuggled") != 0 {
		t.Error("a request inside of another was carried out")
	}
}

// example returns a request of a documented call.
func (o documented) example(method, path string) (request, body string) {
	var query []string
	for _, p := range o.Parameters {
		isNeeded := p.Required || path == "/v1/explain" && p.Name == "key" // or an id
		if isNeeded && p.In != "header" {
			query = append(query, p.Name+"="+fmt.Sprint(p.Example))
		}
	}
	request = strings.ToUpper(method) + " " + path
	if len(query) > 0 {
		request += "?" + strings.Join(query, "&")
	}
	bodies := o.RequestBody.Content["application/json"].Examples
	names := slices.Sorted(maps.Keys(bodies))
	if len(names) > 0 {
		body = string(bodies[names[0]].Value)
	}
	return request, body
}

// TestProfilesAreForAllNamespaces refuses them to administrators of some namespaces: they show the
// flags of the process, with its secrets.
func TestProfilesAreForAllNamespaces(t *testing.T) {
	store, texts := tokens(t, "all admin", "some admin login")
	s, _ := open(t, httpapi.Options{Service: newFake(), Tokens: store, Admin: "127.0.0.1:0"})
	for name, want := range map[string]int{"all": 200, "some": 403} {
		for _, profile := range []string{"cmdline", "heap", "goroutine", "trace?seconds=0.01"} {
			request := fmt.Sprintf("GET /debug/pprof/%s HTTP/1.1\r\nHost: localhost\r\n"+
				"Authorization: Bearer %s\r\n\r\n", profile, texts[name])
			if code, body := send(t, s.AdminAddr().String(), request); code != want {
				t.Errorf("%s for %s: %d %.200s, want %d", profile, name, code, body, want)
			}
		}
	}
}

// TestCloseEndsProfiles closes a server while a profile of an hour is running.
func TestCloseEndsProfiles(t *testing.T) {
	s, _ := open(t, httpapi.Options{Service: newFake(), AdminToken: "secret", Admin: "127.0.0.1:0"})
	c := dial(t, s.AdminAddr().String())
	fmt.Fprint(c, "GET /debug/pprof/trace?seconds=3600 HTTP/1.1\r\nHost: "+
		"localhost\r\nAuthorization: Bearer secret\r\n\r\n")
	eventually(t, trace.IsEnabled, "it has begun")
	began := time.Now()
	if err := s.Close(t.Context()); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if code, body := answer(t, bufio.NewReader(c)); code != 200 || len(body) == 0 {
		t.Errorf("the profile so far: %d, %d bytes", code, len(body))
	}
}
