package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/fields"
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
