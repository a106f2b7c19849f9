package httpapi_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

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
