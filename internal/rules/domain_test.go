package rules_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/seed"
)

// entries parses "key=value key2=value2".
func entries(text string) (list []rules.Entry) {
	for pair := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(pair, "=")
		list = append(list, rules.Entry{Key: key, Value: value})
	}
	return list
}

// TestDocumentedExamples reads the examples of envoyproxy/ratelimit's documentation, and finds the
// limits documented there.
func TestDocumentedExamples(t *testing.T) {
	for _, tt := range []struct {
		about, text string
		want        map[string]string // the limit of each descriptor, "" for none
	}{
		{"example 1: values", `
domain: mongo_cps
descriptors:
  - {key: database, value: users, rate_limit: {unit: second, requests_per_unit: 500}}
  - {key: database, value: default, rate_limit: {unit: second, requests_per_unit: 400}}
`, map[string]string{"database=users": "500/SECOND", "database=default": "400/SECOND",
			"database=other": "", "database=": ""}},
		{"example 2: nested lists, keys without a value", `
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - {key: to_number, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: to_number, rate_limit: {unit: day, requests_per_unit: 100}}
`, map[string]string{"message_type=marketing to_number=206": "5/DAY", "to_number=206": "100/DAY",
			"message_type=marketing": "", "message_type=other to_number=206": ""}},
		{"example 3: the most specific match", `
domain: edge_proxy_per_ip
descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: remote_address, value: 50.0.0.5, rate_limit: {unit: second, requests_per_unit: 0}}
`, map[string]string{"remote_address=50.0.0.1": "10/SECOND", "remote_address=50.0.0.5": "0/SECOND"}},
		{"example 4: the same depth", `
domain: example4
descriptors:
  - key: key
    value: value
    rate_limit: {requests_per_unit: 300, unit: second}
  - key: deep
    descriptors:
      - {key: subkey, rate_limit: {requests_per_unit: 200, unit: second}}
`, map[string]string{"key=value subkey=subvalue": "", "key=value": "300/SECOND",
			"deep=x subkey=y": "200/SECOND", "deep=x": "", "deep=x subkey=y more=z": ""}},
		{"example 5: unlimited", `
domain: internal
descriptors:
  - {key: ldap, rate_limit: {unlimited: true}}
  - {key: azure, rate_limit: {unit: minute, requests_per_unit: 100}}
`, map[string]string{"ldap=x": "unlimited", "azure=x": "100/MINUTE"}},
		{"example 6: shadow_mode", `
domain: example6
descriptors:
  - key: service
    descriptors:
      - key: user
        value: user-a
        rate_limit: {requests_per_unit: 10, unit: second}
        shadow_mode: true
      - {key: user, value: user-b, rate_limit: {requests_per_unit: 20, unit: second}}
`, map[string]string{"service=auth-service user=user-a": "10/SECOND shadow",
			"service=auth-service user=user-b": "20/SECOND",
			"service=auth-service user=user-c": ""}},
		{"example 7: replaces", `
domain: example7
descriptors:
  - key: key_1
    value: value_1
    descriptors:
      - key: user
        value: bkthomps
        rate_limit: {name: specific_limit, requests_per_unit: 5, unit: second}
  - key: key_2
    value: value_2
    descriptors:
      - key: user
        value: bkthomps
        rate_limit: {replaces: [{name: specific_limit}], requests_per_unit: 10, unit: second}
`, map[string]string{"key_1=value_1 user=bkthomps": "5/SECOND name specific_limit",
			"key_2=value_2 user=bkthomps": "10/SECOND replaces [specific_limit]"}},
		{"example 8: detailed_metric", `
domain: example8
descriptors:
  - {key: key1, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: key1, value: value1, rate_limit: {unit: minute, requests_per_unit: 20}}
`, map[string]string{"key1=unspecified": "10/MINUTE", "key1=value1": "20/MINUTE"}},
		{"example 9: stars", `
domain: example9
descriptors:
  - {key: key1, value: value*, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: key1, value: value_9, rate_limit: {unit: hour, requests_per_unit: 9}}
`, map[string]string{"key1=value_1": "20/MINUTE", "key1=value_9": "9/HOUR", "key1=other": "",
			"key1=value*": "20/MINUTE", "key2=value_1": ""}},
		{"a star that shares one count", `
domain: shared
descriptors:
  - key: path
    value: /api/*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 20}
`, map[string]string{"path=/api/a": "20/MINUTE as [{path /api/*}]", "path=/b": ""}},
		{"example 10: stars anywhere", `
domain: example10
descriptors:
  - {key: path, value: /a/*/b, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: host, value: "*.example.com", rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: accept, value: "*/*", rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: "tenant_*", rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: "role_*", value: "admin*", rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: "*", value: "", rate_limit: {unit: minute, requests_per_unit: 6}}
  - {key: host, rate_limit: {unit: minute, requests_per_unit: 7}}
`, map[string]string{"path=/a/x/b": "1/MINUTE", "path=/a/b": "6/MINUTE", "path=/a//b": "1/MINUTE",
			"host=x.example.com": "2/MINUTE", "host=.example.com": "2/MINUTE",
			"host=example.com": "6/MINUTE", "accept=text/html": "3/MINUTE",
			"accept=text": "6/MINUTE", "tenant_7=x": "4/MINUTE", "tenant_7=": "4/MINUTE",
			"tenant=7": "4/MINUTE", "tenants=7": "6/MINUTE", "role_x=admins": "5/MINUTE",
			"role_x=user": "6/MINUTE"}},
		{"stars that share one count", `
domain: stars
descriptors:
  - {key: path, value: "*/b/*", share_threshold: true, rate_limit: {unit: day}}
  - key: "tenant_*"
    share_threshold: true
    descriptors:
      - {key: user, rate_limit: {unit: day}}
`, map[string]string{"path=/a/b/c": "0/DAY as [{path */b/*}]",
			"tenant_7=x user=u": "0/DAY as [{tenant_7 *} {user u}]"}},
		{"two documents", `
domain: merged
descriptors:
  - {key: a, value: "*x", rate_limit: {unit: day, requests_per_unit: 1}}
---
domain: other
---
domain: merged
descriptors:
  - {key: a, value: "x*", rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: a, rate_limit: {unit: day, requests_per_unit: 3}}
---
domain: merged
`, map[string]string{"a=xx": "1/DAY", "a=x1": "2/DAY", "a=1": "3/DAY"}},
		{"quota_mode", `
domain: quota
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: day}}
  - {key: b, quota_mode: true, shadow_mode: true, rate_limit: {unit: day}}
  - {key: c, quota_mode: false, rate_limit: {unit: day}}
`, map[string]string{"a=x": "0/DAY shadow quota", "b=x": "0/DAY shadow", "c=x": "0/DAY"}},
		{"no limit at all, and a multiplier", `
domain: rest
descriptors:
  - {key: free}
  - {key: slow, rate_limit: {unit: MINUTE, unit_multiplier: 10, requests_per_unit: 3}}
`, map[string]string{"free=x": "", "slow=x": "3/10 MINUTE"}},
	} {
		_, name, _ := strings.Cut(tt.text, "domain: ")
		name, _, _ = strings.Cut(name, "\n")
		domain := read(t, tt.text).Domain(name)
		for descriptor, want := range tt.want {
			asked := entries(descriptor)
			limit, counted := domain.Find(asked)
			if got := show(limit, asked, counted); got != want {
				t.Errorf("%s: %s: %q, want %q", tt.about, descriptor, got, want)
			}
			if fmt.Sprint(asked) != fmt.Sprint(entries(descriptor)) {
				t.Errorf("%s: %s: the request was changed to %v", tt.about, descriptor, asked)
			}
		}
	}
}

// show formats a limit, and the counted descriptor if it differs from the request's.
func show(l *rules.DescriptorLimit, asked, counted []rules.Entry) string {
	switch {
	case l == nil:
		return ""
	case l.Unlimited:
		return "unlimited"
	}
	text := fmt.Sprintf("%d/", l.Max)
	if l.Multiplier > 1 {
		text += fmt.Sprint(l.Multiplier, " ")
	}
	text += l.Unit.String()
	if l.Shadow {
		text += " shadow"
	}
	if l.Quota {
		text += " quota"
	}
	if l.Name != "" {
		text += " name " + l.Name
	}
	if len(l.Replaces) > 0 {
		text += fmt.Sprint(" replaces ", l.Replaces)
	}
	if fmt.Sprint(asked) != fmt.Sprint(counted) {
		text += fmt.Sprint(" as ", counted)
	}
	return text
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]int64{"second": 1, "Minute": 60, "HOUR": 3600, "day": 86400,
		"week": 604800, "month": 2592000, "year": 31536000} {
		u, err := rules.ParseUnit(text)
		if err != nil || u.Milliseconds() != want*1000 || u.String() != strings.ToUpper(text) {
			t.Errorf("%s: %v, %d ms, %v", text, u, u.Milliseconds(), err)
		}
	}
}

// envoyValues are values of every key of envoyproxy/ratelimit.
var envoyValues = map[string][]string{
	"domain": {"d"}, "key": {"k", "7", "k*"},
	"value":       {"''", "v", "a*", "'*a*b*'", "null", "7", "true"},
	"descriptors": {"[]", "null", "[{key: x}]"},
	"rate_limit": {"null", "{unit: day, requests_per_unit: 2}", "{unit: day}",
		"{unlimited: true, unit: UNKNOWN}", "{unlimited: true, requests_per_unit: 3}"},
	"unit":              {"second", "MINUTE", "Hour", "day", "week", "month", "year"},
	"requests_per_unit": {"0", "5", "4294967295", "1_000", "0x10", "08"},
	"unit_multiplier":   {"1", "30"}, "unlimited": {"false", "no"}, "name": {"n", "7"},
	"replaces":    {"[]", "null", "[{name: m}]"},
	"shadow_mode": {"false", "true", "off", "yes", "1", "T"}, "quota_mode": {"false", "true"},
	"detailed_metric": {"false", "true"}, "value_to_metric": {"false", "true"},
	"share_threshold": {"false"}, "metadata": {"null", "{a: {b: [1, x]}}"},
}

// envoyMappings are the mappings of the format: the text around one, the keys that it must have,
// and those without a warning.
var envoyMappings = map[string]struct {
	around string
	must   map[string]string
	belong string
}{
	"document": {"%s", map[string]string{"domain": "d"}, "domain descriptors name"},
	"descriptor": {"{domain: d, descriptors: [%s]}", map[string]string{"key": "k"},
		"key value descriptors rate_limit shadow_mode quota_mode share_threshold " +
			"detailed_metric=false value_to_metric=false"},
	"rate_limit": {"{domain: d, descriptors: [{key: k, rate_limit: %s}]}",
		map[string]string{"unit": "day"},
		"unit requests_per_unit unit_multiplier unlimited name replaces"},
	"item of replaces": {
		"{domain: d, descriptors: [{key: k, rate_limit: {unit: day, replaces: [%s]}}]}",
		map[string]string{"name": "m"}, "name"},
}

// TestEveryKeyOfEnvoyIsReadOrNamed puts every key with each of its values into every mapping.
// envoyproxy/ratelimit accepts all of them, so each is read, or named as one without an effect.
func TestEveryKeyOfEnvoyIsReadOrNamed(t *testing.T) {
	for place, in := range envoyMappings {
		for key, values := range envoyValues {
			for _, value := range values {
				pairs := maps.Clone(in.must)
				pairs[key] = value
				text := fmt.Sprintf(in.around, flow(pairs))
				belong := strings.Fields(in.belong)
				named := !slices.Contains(belong, key) && !slices.Contains(belong, key+"="+value)
				doc, err := rules.Read("r.yaml", []byte(text))
				if err != nil {
					t.Errorf("%s in a %s: %v", key, place, err)
					continue
				}
				ignored := doc.Source().Ignored
				if (len(ignored) > 0) != named || named && ignored[0].Key != key {
					t.Errorf("%s: %+v are named, want %s: %t", text, ignored, key, named)
				}
			}
		}
	}
}

// flow formats a mapping on one line.
func flow(pairs map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		list = append(list, key+": "+pairs[key])
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// TestIgnoredKeysAreCounted names a key without an effect once, with the number of its places.
func TestIgnoredKeysAreCounted(t *testing.T) {
	doc := read(t, "domain: d\ndescriptors:\n- {key: a, detailed_metric: true}\n"+
		"- {key: b, detailed_metric: true, metadata: {x: y}}\n- {key: c, detailed_metric: false}\n")
	got := fmt.Sprint(doc.Source().Ignored)
	want := "[{detailed_metric metrics never contain values of requests r.yaml:3:12 2} " +
		"{metadata it is not sent to Envoy r.yaml:4:35 1}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestStarsAgainstExpressions draws values with stars and texts, and compares with regular
// expressions.
func TestStarsAgainstExpressions(t *testing.T) {
	start := seed.First()
	random := rand.New(rand.NewPCG(start, 0))
	draw := func(letters string) string {
		b := make([]byte, random.IntN(7))
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	matched := 0
	for range 20_000 {
		pattern, text := draw("ab**")+"*"+draw("ab*"), draw("ab")
		inKey := random.IntN(2) == 0
		entry, asked := rules.Entry{Key: "k", Value: pattern}, rules.Entry{Key: "k", Value: text}
		if inKey {
			entry, asked = rules.Entry{Key: pattern, Value: "b"}, rules.Entry{Key: text, Value: "b"}
		}
		doc := read(t, fmt.Sprintf("domain: d\ndescriptors: [{key: %q, value: %q, rate_limit: "+
			"{unit: day}}]", entry.Key, entry.Value))
		limit, _ := doc.Domain("d").Find([]rules.Entry{asked})
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		want := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(text)
		if (limit != nil) != want {
			t.Fatalf("seed %d: %q with %q: %t", start, pattern, text, limit != nil)
		}
		if want {
			matched++
		}
	}
	if matched < 1000 || matched > 19_000 {
		t.Errorf("seed %d: %d of 20,000 matched", start, matched)
	}
}
