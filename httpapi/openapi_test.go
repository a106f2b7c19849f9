package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/testing/costtable"
	"twotier.dev/twotier/internal/testing/must"
)

// document is the part of OpenAPI that the tests need.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]documented
	Components map[string]map[string]any
}

type documented struct {
	Parameters []struct {
		Name, In string
		Required bool
		Example  any
	}
	RequestBody struct {
		Content map[string]struct {
			Examples map[string]struct{ Value json.RawMessage }
		}
	}
	Responses map[string]any
	Security  []map[string][]string
}

func readDocument(t *testing.T) (doc document, raw []byte) {
	t.Helper()
	raw = call(newServer(t, newFake()), "GET /openapi.json", "").Response.Body()
	decode(t, raw, &doc)
	return doc, raw
}

func TestDocumentHasEveryRoute(t *testing.T) {
	doc, _ := readDocument(t)
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %q", doc.OpenAPI)
	}
	served := newServer(t, newFake()).Served()
	for request := range served {
		method, path, _ := strings.Cut(request, " ")
		if _, ok := doc.Paths[path][method]; !ok && !strings.HasPrefix(path, "/assets/") {
			t.Errorf("%s %s is not documented", method, path)
		}
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if !served[method+" "+path] {
				t.Errorf("%s %s is not served", method, path)
			}
		}
	}
}

func TestDocumentedExamplesAreAccepted(t *testing.T) {
	doc, _ := readDocument(t)
	tried := 0
	for path, methods := range doc.Paths {
		for method, o := range methods {
			query, header := url.Values{}, map[string]string{}
			for _, p := range o.Parameters {
				if p.Required && p.Example == nil {
					t.Errorf("%s: parameter %s has no example", path, p.Name)
				}
				if p.Example != nil && p.In == "header" {
					header[p.Name] = fmt.Sprint(p.Example)
				} else if p.Example != nil {
					query.Set(p.Name, fmt.Sprint(p.Example))
				}
			}
			request := strings.ToUpper(method) + " " + path
			if len(query) > 0 {
				request += "?" + query.Encode()
			}
			bodies := o.RequestBody.Content["application/json"].Examples
			if method == "get" {
				bodies = map[string]struct{ Value json.RawMessage }{"": {}}
			}
			for name, body := range bodies {
				tried++
				ctx := newRequest(request, string(body.Value))
				for name, value := range header {
					ctx.Request.Header.Set(name, value)
				}
				newServer(t, newFake()).Handle(ctx)
				if code := ctx.Response.StatusCode(); code != 200 ||
					strings.Contains(string(ctx.Response.Body()), `"error":{`) &&
						path == "/v1/batch" {
					t.Errorf("%s, example %q: %d %s", request, name, code, ctx.Response.Body())
				}
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d examples", tried)
	}
}

// TestDocumentHasTheFields compares the schemas of requests with the table of fields: their names,
// that booleans are such, and the least numbers.
func TestDocumentHasTheFields(t *testing.T) {
	_, raw := readDocument(t)
	var all openAPI
	decode(t, raw, &all)
	for name, want := range map[string]fields.Set{
		"AddFields": fields.OfAdd, "CountFields": fields.OfCount,
		"AcquireFields": fields.OfAcquire, "DistinctFields": fields.OfDistinct,
		"Check": fields.OfCheck, "Settle": fields.OfSettle, "Renew": fields.OfRenew,
		"Reset": fields.OfReset, "Limit": fields.OfLimit &^ fields.Concurrent,
		"OpenLimit": fields.Concurrent,
	} {
		of := all.Components.Schemas[name]
		if got := slices.Compact(slices.Sorted(slices.Values(all.fieldsOf(of)))); !slices.Equal(got,
			slices.Sorted(slices.Values(want.Names()))) {
			t.Errorf("%s has %v, want %v", name, got, want.Names())
		}
		for _, part := range append(of.OneOf, of) {
			for field, is := range part.Properties {
				if ref, ok := strings.CutPrefix(is.Ref, "#/components/schemas/"); ok {
					is = all.Components.Schemas[ref]
				}
				f := fields.Named([]byte(field))
				if isBoolean := f&fields.Booleans != 0; (is.Type == "boolean") != isBoolean {
					t.Errorf("%s: %s is of type %q", name, field, is.Type)
				}
				if f.Want() != "" && (!f.Allows(is.Minimum) || f.Allows(is.Minimum-1)) {
					t.Errorf("%s: %s has the minimum %d, but %s", name, field, is.Minimum, f.Want())
				}
			}
		}
	}
}

// TestDocumentRefersToWhatExists checks every $ref.
func TestDocumentRefersToWhatExists(t *testing.T) {
	doc, raw := readDocument(t)
	var tree any
	decode(t, raw, &tree)
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				parts := strings.Split(ref, "/")
				if len(parts) != 4 || doc.Components[parts[2]][parts[3]] == nil {
					t.Errorf("%s does not exist", ref)
				}
			}
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(tree)
}

// TestEveryRouteHasACost compares the routes of a server that serves everything with the table of
// costs.
func TestEveryRouteHasACost(t *testing.T) {
	f := newFake()
	s := serverOf(t, httpapi.Options{Service: f, AdminToken: adminToken, Rules: testRules{},
		Holds: documentedHolds(), RateLimiter: &limiter{}, RuleBook: newRuleBook(t),
		Backtester: new(backtester), Story: &tale{}, Peer: echo{},
		Admin: "127.0.0.1:0", PeerListen: "127.0.0.1:0"})
	var served []string
	for call := range s.Served() {
		_, path, _ := strings.Cut(call, " ")
		for _, many := range []string{"/assets/", "/debug/pprof/"} {
			if strings.HasPrefix(path, many) {
				path = many
			}
		}
		served = append(served, path)
	}
	costtable.Compare(t, "../docs/security.md", served, func(call string) bool {
		return call[0] == '/' && !strings.Contains(call, ".v")
	})
}

// calledIn matches a call in a heading of docs/api.md.
var calledIn = regexp.MustCompile("`(GET|POST|PUT) (/[^`]*)`")

// TestAPIPageHasEveryCall compares docs/api.md with the served description of the API: a section's
// heading names each call, and the section has all parameters, headers and fields of its request.
func TestAPIPageHasEveryCall(t *testing.T) {
	page := must.Read(t, filepath.Join("..", "docs", "api.md"))
	sections := map[string]string{}
	for section := range strings.SplitSeq(page, "\n### ") {
		heading, text, _ := strings.Cut(section, "\n")
		for _, m := range calledIn.FindAllStringSubmatch(heading, -1) {
			sections[strings.ToLower(m[1])+" "+m[2]] = text
		}
	}
	doc, raw := readDocument(t)
	var all openAPI
	must.Succeed(t, json.Unmarshal(raw, &all))
	for path, methods := range doc.Paths {
		for method, call := range methods {
			name := method + " " + path
			text, ok := sections[name]
			if !ok {
				t.Errorf("the page lacks %s", name)
				continue
			}
			delete(sections, name)
			body := all.Paths[path][method].RequestBody.Content["application/json"]
			names := all.fieldsOf(body.Schema)
			for _, p := range call.Parameters {
				names = append(names, p.Name)
			}
			for _, field := range names {
				if !regexp.MustCompile("[`?&\"]" + field + "\\b").MatchString(text) {
					t.Errorf("%s: the page lacks %s", name, field)
				}
			}
		}
	}
	for name := range sections {
		t.Errorf("the page has %s, which is not served", name)
	}
}

// openAPI is the part of OpenAPI with the schemas of bodies.
type openAPI struct {
	Paths map[string]map[string]struct {
		RequestBody struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

// schema is the part of a JSON schema about fields.
type schema struct {
	Ref                 string `json:"$ref"`
	Type                string
	Minimum             int64
	Properties          map[string]schema
	AllOf, AnyOf, OneOf []schema
}

// fieldsOf returns the fields of an object with the schema, without those of nested objects.
func (a *openAPI) fieldsOf(s schema) []string {
	names := slices.Collect(maps.Keys(s.Properties))
	parts := slices.Concat(s.AllOf, s.AnyOf, s.OneOf)
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		parts = append(parts, a.Components.Schemas[name])
	}
	for _, part := range parts {
		names = append(names, a.fieldsOf(part)...)
	}
	return names
}
