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
		for key, value := range eachValue() {
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

// eachValue iterates over all keys with each of their values.
func eachValue() func(yield func(key, value string) bool) {
	return func(yield func(key, value string) bool) {
		for key, all := range envoyValues {
			for _, value := range all {
				if !yield(key, value) {
					return
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
