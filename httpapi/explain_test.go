package httpapi_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/refusallog"
)

// The fake finds the refusals in its own log. It is node n1, and n2 decides about its keys.
var _ explain.Refusals = (*fake)(nil)

func (f *fake) Refusals(_ context.Context, ns, key []byte, limit int) []refusallog.Refusal {
	if f.refusals == nil {
		return nil
	}
	return f.refusals.List(ns, key, limit)
}

func (f *fake) Refusal(_ context.Context, id string) (refusallog.Refusal, error) {
	if f.err != nil || f.refusals == nil {
		return refusallog.Refusal{}, f.err
	}
	return f.refusals.Find(id)
}

func (*fake) Decider(_, _ []byte) string { return "n2" }

func (*fake) Identify() (string, int64) { return "n1", explainedAt }

// explainedAt is the time of the log of refusals.
const explainedAt = 1_767_225_600_000

// newExplaining returns a server that records refusals, and its service.
func newExplaining(t testing.TB) (*httpapi.Server, *fake) {
	f := newFake()
	f.refusals = refusallog.New("n1", func() int64 { return explainedAt })
	return newServer(t, f), f
}

// explained is the part of an explanation that the tests need.
type explained struct {
	Key, NS, Node, Owner, Source string
	Refusal                      *refusallog.Refusal
	Rules                        []explain.Rule
	Refusals                     []refusallog.Refusal
}

// explainQuery asks for an explanation.
func explainQuery(t *testing.T, s *httpapi.Server, query string) (a explained) {
	t.Helper()
	ctx := call(s, "GET /v1/explain?"+query, "")
	if code := ctx.Response.StatusCode(); code != fasthttp.StatusOK {
		t.Fatalf("%s: %d %s", query, code, ctx.Response.Body())
	}
	decode(t, ctx.Response.Body(), &a)
	return a
}

// refusedWith refuses a request and returns the ids in its header and its answer.
func refusedWith(t *testing.T, s *httpapi.Server, request, body string) (header, id string) {
	t.Helper()
	ctx := call(s, request, body)
	var a struct{ ID string }
	decode(t, ctx.Response.Body(), &a)
	return string(ctx.Response.Header.Peek("Twotier-Refusal")), a.ID
}

// TestRefusalsHaveIDs: the answer and the header of a refusal have its id, with which the refusal
// is explained. Allowed requests, dry runs, and rules in shadow have none.
func TestRefusalsHaveIDs(t *testing.T) {
	s, _ := newExplaining(t)
	limits := `"limits":[{"window":"1m","max":3},{"window":"1h","max":9}]`
	for _, body := range []string{`{"key":"a","n":2,` + limits + `}`,
		`{"key":"a","n":2,"dry_run":true,` + limits + `}`, `{"key":"b","n":2,"rules":["tight"]}`,
		`{"key":"c","n":0,` + limits + `}`} {
		if header, id := refusedWith(t, s, "POST /v1/acquire", body); header != "" || id != "" {
			t.Errorf("%s: %q, %q", body, header, id)
		}
	}
	header, id := refusedWith(t, s, "POST /v1/acquire", `{"key":"a","n":2,`+limits+`}`)
	if id == "" || header != id || !strings.HasPrefix(id, "n1.") {
		t.Fatalf("%q in the header, %q in the answer", header, id)
	}
	a := explainQuery(t, s, "id="+url.QueryEscape(id))
	r := a.Refusal
	if r == nil || r.ID != id || r.Key != "a" || r.NS != "default" || r.Rule != "" ||
		r.Reason != "limit" || r.Window != "1m" || r.Count != 2 || r.Limit != 3 || r.N != 2 ||
		r.RetryAfter != 1500 || r.Door != "http" || r.Node != "n1" || r.At != explainedAt ||
		r.Times != 1 || len(r.Limits) != 2 {
		t.Errorf("%+v", r)
	}
	if a.Key != "a" || a.Node != "n1" || a.Owner != "n2" || len(a.Refusals) != 1 {
		t.Errorf("%+v", a)
	}
	last := a.Rules[len(a.Rules)-1]
	if last.Rule != "" || !last.Passes || len(last.Windows) != 2 || last.Windows[0].Limit != 3 ||
		last.Windows[0].Count != 2 || last.Windows[0].Remaining != 1 {
		t.Errorf("the limits of the request: %+v", last)
	}
}

// TestBatchesNameEachRefusal: each refused operation of a batch has its own id, and a quiet batch
// is recorded, too.
func TestBatchesNameEachRefusal(t *testing.T) {
	s, _ := newExplaining(t)
	ops := `"ops":[{"op":"acquire","key":"x","n":9,"rules":["login"]},{"op":"add","key":"y"},` +
		`{"op":"acquire","key":"y","limits":[{"window":"1m","max":9}]},` +
		`{"op":"acquire","key":"z","n":9,"limits":[{"window":"1m","max":1}]}]`
	var batch struct {
		Results []struct {
			Allowed *bool
			ID      string
		}
	}
	decode(t, call(s, "POST /v1/batch", "{"+ops+"}").Response.Body(), &batch)
	for i, r := range batch.Results {
		if refused := r.Allowed != nil && !*r.Allowed; refused != (r.ID != "") {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	call(s, "POST /v1/batch", `{"quiet":true,`+ops+"}")
	x := explainQuery(t, s, "key=x&rule=login")
	if len(x.Refusals) != 1 || x.Refusals[0].ID != batch.Results[0].ID ||
		x.Refusals[0].Times != 2 || x.Refusals[0].Rule != "login" ||
		len(x.Rules) != 1 || len(x.Rules[0].Windows) != 2 {
		t.Errorf("%+v", x)
	}
	if z := explainQuery(t, s, "key=z"); z.Refusals[0].ID != batch.Results[3].ID {
		t.Errorf("%+v", z.Refusals)
	}
}

// TestForwardAuthNamesItsRefusal: so does the answer to a proxy, and to values.
func TestForwardAuthNamesItsRefusal(t *testing.T) {
	s, _ := newExplaining(t)
	header, id := "", ""
	for id == "" {
		header, id = refusedWith(t, s, "GET /v1/forward-auth?rule=login&key=ip", "")
	}
	if a := explainQuery(t, s, "id="+id); header != id || a.Refusal.Door != "forward-auth" ||
		a.Refusal.Rule != "login" {
		t.Errorf("%q, %+v", header, a.Refusal)
	}
}

// TestExplainQueries covers mistakes in queries, and reasons why an id finds nothing.
func TestExplainQueries(t *testing.T) {
	s, f := newExplaining(t)
	_, id := refusedWith(t, s, "POST /v1/acquire",
		`{"key":"a","n":2,"limits":[{"window":"1m","max":1}]}`)
	wrong := id[:len(id)-1] + string('a'+('z'-id[len(id)-1])%2)
	if wrong == id {
		wrong = id + "0"
	}
	for query, want := range map[string]string{
		"":                         "key: missing",
		"key=a&by=x":               "by: unknown parameter; explain has key, ns, rule and id",
		"key=a&id=" + id:           "id: want either",
		"key=a&rule=none":          `rule: there is no rule \"none\"`,
		"key=a&ns=risk&rule=login": "ns: rule login counts in namespace default",
		"id=":                      "id: want the id",
		"id=unknown":               "404 id: there is no such refusal: an id is",
		"id=" + wrong:              "404 id: there is no such refusal: the node has recorded none",
		"id=n9.2tfw0c9r8":          "404 id: there is no such refusal",
		"key=%01":                  "key: want 1 to 256",
	} {
		code, text := 422, strings.TrimPrefix(want, "404 ")
		if text != want {
			code = 404
		}
		status(t, call(s, "GET /v1/explain?"+query, ""), code, `"detail":"`+text)
	}
	f.err = twotier.ErrUnavailable
	for _, query := range []string{"key=a", "id=" + id} {
		status(t, call(s, "GET /v1/explain?"+query, ""), 503, "")
	}
}

// TestRefusalsAllocateNothing covers refused requests, which are recorded and named.
func TestRefusalsAllocateNothing(t *testing.T) {
	s, f := newExplaining(t)
	f.set([]byte("user:1234567"), 50)
	ctx := newRequest("POST /v1/acquire",
		`{"key":"user:1234567","limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`)
	allocatesNothing(t, "a refusal", s, ctx)
	if id := ctx.Response.Header.Peek("Twotier-Refusal"); len(id) == 0 {
		t.Error("it has no id")
	}
	if list := f.refusals.List(nil, []byte("user:1234567"), 9); len(list) != 1 ||
		list[0].Times < 200 {
		t.Errorf("%+v", list)
	}
}

// TestExplainNeedsTheRoleToRead: tokens that may only count, or are for other namespaces, get
// nothing, not even by an id.
func TestExplainNeedsTheRoleToRead(t *testing.T) {
	f := newFake()
	f.refusals = refusallog.New("n1", func() int64 { return explainedAt })
	store, texts := tokens(t, "count count *", "read read *", "other read sms")
	s := serverOf(t, httpapi.Options{Service: f, Verdicts: f.counters(), Tokens: store})
	refusal := decisions.Decision{Door: "http", Key: []byte("a"), N: 1}
	f.refusals.Record(&refusal)
	id := refusal.Refusal.String()
	for token, want := range map[string]int{"count": 403, "other": 403, "read": 200, "none": 401} {
		for _, query := range []string{"key=a", "id=" + id} {
			ctx := as(s, texts[token], "GET /v1/explain?"+query, "")
			if token == "other" && query != "key=a" {
				want = 404 // as for an unknown id
			}
			if ctx.Response.StatusCode() != want {
				t.Errorf("%s with token %s: %d %s", query, token, ctx.Response.StatusCode(),
					ctx.Response.Body())
			}
		}
	}
}
