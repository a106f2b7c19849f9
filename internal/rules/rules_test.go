package rules_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

func read(t *testing.T, text string) *rules.Document {
	t.Helper()
	doc, err := rules.Read("r.yaml", []byte(text))
	must.Succeed(t, err)
	return doc
}

// fails fails the test unless a text is refused for that mistake.
func fails(t *testing.T, text, mistake string) {
	t.Helper()
	doc, err := rules.Read("r.yaml", []byte(text))
	if err == nil || doc != nil || !strings.Contains(err.Error(), mistake) {
		t.Errorf("%s\n got %v\nwant %s", text, err, mistake)
	}
}

// windowsOf lists the windows of a document in milliseconds.
func windowsOf(doc *rules.Document) (windows []int64) {
	_ = doc.EachWindow(func(_ string, ms int64) error { windows = append(windows, ms); return nil })
	return windows
}

func TestNamedRules(t *testing.T) {
	doc := read(t, `
rules:
  - {name: login, limits: [15/1m, 50/1d]}
  - name: login-ip
    namespace: ip
    limits:
      - 100/1m30s
    state: shadow
  - {name: old, limits: &some [0/500ms], state: off}
  - {name: alias, limits: *some}
`)
	if got := fmt.Sprint(doc.Rules.Names()); got != "[alias login login-ip old]" {
		t.Errorf("names %s", got)
	}
	for name, want := range map[string]string{
		"login":    "{login  [{60000 15 1m <nil>} {86400000 50 1d <nil>}] on}",
		"login-ip": "{login-ip ip [{90000 100 1m30s <nil>}] shadow}",
		"old":      "{old  [{500 0 500ms <nil>}] off}",
		"alias":    "{alias  [{500 0 500ms <nil>}] on}",
	} {
		r := doc.Rules.Find([]byte(name))
		if got := fmt.Sprintf("{%s %s %v %v}", r.Name, r.Namespace, r.Limits,
			r.State); got != want || r.Default || r.Overrides != nil {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	var none *twotier.RuleSet
	if doc.Rules.Find([]byte("nobody")) != nil || none.Find([]byte("login")) != nil {
		t.Error("found a rule that does not exist")
	}
}

// described returns a document with descriptors, limited one with the limit of a descriptor.
func described(descriptors string) string { return "domain: a\ndescriptors: [" + descriptors + "]" }
func limited(limit string) string         { return described("{key: x, rate_limit: {" + limit + "}}") }

// overridden returns a document with overrides, and distinctly one with distinct limits.
func overridden(overrides string) string {
	return "rules: [{name: a, limits: [1/1s], overrides: [" + overrides + "]}]"
}
func distinctly(distinct string) string { return "rules: [{name: a, distinct: " + distinct + "}]" }

// many returns a list of an item with its number.
func many(n int, item string) (list string) {
	for i := range n {
		list += fmt.Sprintf(item+",", i)
	}
	return list
}

const onePrefix = "{prefix: p%d, limits: [1/1s]}"

// onValues returns default rules, each of which may have 16 limits on distinct values for a key.
func onValues(n int, state string) (list string) {
	sixteen := strings.TrimSuffix(strings.Repeat("1/1s, ", 16), ", ")
	for i := range n {
		list += fmt.Sprintf("- {name: v%d, default: true, state: %s, distinct: 1/1s, overrides: "+
			"[{key: a, distinct: [%s]}]}\n", i, state, sixteen)
	}
	return list
}

func TestMistakesHaveTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [":  "r.yaml:2:1: did not find expected node content",
		"rule: []":  `r.yaml:1:1: unknown key "rule"; a document has rules, or`,
		"x: 1":      `r.yaml:1:1: unknown key "x"; a document has rules, or domain and descriptors`,
		"rules: {}": "r.yaml:1:8: rules is not a list",
		"rules: [a]": `r.yaml:1:9: a rule is not made of lines such as "name: login"` + "\n" +
			"r.yaml:1:9: a rule without a name",
		"rules: [{name: a b, limits: [1/1s]}]":        "r.yaml:1:16: the name of a rule: ",
		"rules: [{name: a}]":                          "r.yaml:1:9: rule a has no limits",
		"rules: [{name: a, limits: []}]":              "r.yaml:1:27: limits: want 1 to 16 of them",
		"rules: [{name: a, limits: [1]}]":             `r.yaml:1:28: limit: "1" is not MAX/WINDOW`,
		"rules: [{name: a, limits: [-1/1s]}]":         `r.yaml:1:28: limit: "-1/1s" is not MAX/WINDOW`,
		"rules: [{name: a, limits: [1/1x]}]":          `r.yaml:1:28: limit: "1x" is not a duration`,
		"rules: [{name: a, limits: [1/1us]}]":         `r.yaml:1:28: limit: "1us" is not a whole number`,
		"rules: [{name: a, limits: [[1/1s]]}]":        "r.yaml:1:28: a limit is not a single value",
		"rules: [{name: a, name: b, limits: [1/1s]}]": "r.yaml:1:19: name is set already in line 1",
		"rules:\n- {name: a, limits: [1/1s]}\n- {name: a, limits: [1/1s]}": "r.yaml:3:10: there " +
			"is a rule a already in line 2",
		"rules: [{name: a, limits: [1/1s], ban: 25h}]":   `r.yaml:1:40: ban: "25h" is not from 1s to 24h`,
		"rules: [{name: a, limits: [1/1s], ban: 10}]":    `r.yaml:1:40: ban: `,
		"rules: [{name: a, limits: [1/1s], ban: 99ms}]":  `r.yaml:1:40: ban: "99ms" is not from 1s`,
		"rules: [{name: a, limits: [1/1s], charge: on}]": `r.yaml:1:43: charge: "on" is not "always"`,
		"rules: [{name: a, distinct: 1/1s, charge: always}]": "r.yaml:1:43: charge: rule a has " +
			"only distinct limits",
		"rules: [{name: a, limits: [1/1s], state: of}]":   `r.yaml:1:42: state: "of" is not one of`,
		overridden("{key: a}"):                            "r.yaml:1:47: an override has either",
		overridden("{limits: [1/1s]}"):                    "r.yaml:1:47: an override has either",
		overridden("{key: a, prefix: b, limits: [1/1s]}"): "r.yaml:1:47: an override has either",
		overridden("{key: '', limits: [1/1s]}"):           "r.yaml:1:53: key: want 1 to 256 bytes",
		overridden(`{prefix: "a\n", limits: [1/1s]}`):     "r.yaml:1:56: prefix: want 1 to 256 bytes",
		overridden("{key: a, limits: [1]}"):               `r.yaml:1:65: limit: "1" is not MAX/WINDOW`,
		overridden("{keys: a, limits: [1/1s]}"):           `r.yaml:1:48: unknown key "keys"; an override has key or`,
		overridden("{key: a, limits: [1/1s]}, {key: a, limits: [1/1s]}"): "r.yaml:1:73: there " +
			`is an override for key "a" already in line 1`,
		overridden(many(65, onePrefix)): "r.yaml:1:46: overrides: want at most 64 with a prefix",

		"rules: [{name: a, limits: [1/1s], default: yes}]": `r.yaml:1:44: default: "yes" is neither`,
		"rules: [" + many(17, "{name: d%02d, limits: [1/1s], default: true}") + "]": "r.yaml:1:" +
			"697: more than 16 default",
		"rules:\n" + onValues(5, "shadow"): "r.yaml:6:3: the default rules of namespace default " +
			"have more than 64 distinct limits",
		distinctly("[]"): "r.yaml:1:29: distinct: " +
			"want 1 to 16 of them",
		distinctly("5"):         `r.yaml:1:29: limit: "5" is not MAX/WINDOW`,
		distinctly("[5/1d, 1]"): `r.yaml:1:36: limit: "1" is not MAX/WINDOW`,
		distinctly("{}"):        "r.yaml:1:29: limit: want max and window",
		distinctly("~"):         "r.yaml:1:29: ",
		distinctly("5/1d, ban: 10m"): "r.yaml:1:40: ban: rule a has only distinct limits, and " +
			"these start no bans",
		distinctly("5/1d, overrides: [{key: b, limits: [5/1d]}]"): "r.yaml:1:46: overrides: one " +
			"has limits, and rule a has only distinct",
		overridden("{key: b, distinct: 5/1d}"): "r.yaml:1:46: overrides: one has distinct, and " +
			"rule a has only limits",
		"rules: []\n---\nrules: [{}]": "r.yaml:3:9: a rule without a name",
		"descriptors: []": "r.yaml:1:14: descriptors without " +
			"a domain",
		"domain: \"\"": "r.yaml:1:9: domain: the name is empty",
		described("{key: x}") + "\n---\n" + described("{key: x}"): "r.yaml:5:15: " +
			`there is a descriptor with the key "x" and the value "" already`,
		"domain: a\nlimits: []":         `r.yaml:2:1: unknown key "limits"; a document has rules`,
		"rules: []\nname: a":            `r.yaml:2:1: unknown key "name"; a document has rules`,
		described("{value: x}"):         "r.yaml:2:15: a descriptor without a key",
		described("{key: x, limit: 1}"): `r.yaml:2:24: unknown key "limit"`,
		described("{key: x}, {key: x}"): "r.yaml:2:25: there is a descriptor with " +
			`the key "x" and the value "" already`,
		described("{key: x, value: y}, {key: x, value: y}"): `the value "y" already`,
		described("{key: x, value: y, share_threshold: true}"): "neither the value nor the key " +
			"has a star",
		limited("unit: era"): "r.yaml:2:43: unit: \"era\" is " +
			"not one of second",
		limited("requests_per_unit: 1"): "has no unit",
		limited("unit: day, unlimited: true"): "an unlimited " +
			"descriptor has none",
		limited("unit: day, requests_per_unit: -1"): "r.yaml:2:67: " +
			`requests_per_unit: "-1" is not a number`,
		limited("unit: day, unit_multiplier: 0"): "want 1 to 1000000",
		limited("unit: day, name: n, replaces: [{name: n}]"): "can't " +
			"replace itself",
		limited("unit: day, replaces: [{}]"):                     "an item without a name",
		described("{key: x, shadow_mode: maybe}"):                `"maybe" is neither true nor false`,
		"domain: a\ndescriptors: &d [{key: x, descriptors: *d}]": "an alias of what it is in",
		"domain: a\ndescriptors: " + strings.Repeat("[{key: x, descriptors: ", 40) + "[]" +
			strings.Repeat("}]", 40): "nested more than 32 deep",
	} {
		fails(t, text, want)
	}
}

// TestDefaultRulesThatFit has as many limits on distinct values as a request may have, and more in
// a rule that is off and in another namespace.
func TestDefaultRulesThatFit(t *testing.T) {
	text := "rules:\n" + onValues(4, "on") +
		"- {name: off, default: true, state: off, distinct: 1/1s}\n" +
		"- {name: other, namespace: x, default: true, distinct: 1/1s}\n"
	read(t, text)
	fails(t, text+"- {name: one, default: true, distinct: 1/1s}\n", "more than 64 distinct limits")
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, err := rules.Read("r.yaml", []byte("rules:\n- {nam: a}\n- {name: b, limits: [x]}\nq: 1\n"))
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("mistakes in lines 2 (two), 3 and 4:\n%v", err)
	}
}

// nested returns levels of descriptors; at each level two entries share the level before through an
// alias.
func nested(levels int) string {
	list := "[{key: a}, {key: b}]"
	for i := range levels {
		list = fmt.Sprintf("[{key: a, descriptors: &d%d %s}, {key: b, descriptors: *d%[1]d}]", i,
			list)
	}
	return "domain: a\ndescriptors: " + list
}

// TestAliasesAreNotMuchWork reads a kilobyte of aliases that stand for millions of descriptors.
func TestAliasesAreNotMuchWork(t *testing.T) {
	read(t, nested(12))
	fails(t, nested(20), "stand for more than")
}

func TestEachWindow(t *testing.T) {
	doc := read(t, "rules: [{name: a, namespace: n, limits: [1/2s, 1/1m]}]\ndomain: d/e\n"+
		"descriptors: [{key: k, rate_limit: {unit: week, unit_multiplier: 2}}, "+
		"{key: l, rate_limit: {unlimited: true}}]")
	var got []string
	err := doc.EachWindow(func(namespace string, ms int64) error {
		got = append(got, fmt.Sprint(namespace, " ", ms))
		return errors.New("bad")
	})
	const want = "[n 2000 n 60000 domain-beca7883ac15db928b3a23b745ef662e 1209600000]"
	if fmt.Sprint(got) != want {
		t.Errorf("windows %v, want %s", got, want)
	}
	const first = "r.yaml:1:42: bad\nr.yaml:1:48: bad\nr.yaml:3:"
	if err == nil || !strings.HasPrefix(err.Error(), first) {
		t.Errorf("errors %v", err)
	}
	doc = read(t, overridden(many(64, onePrefix))+"\ndomain: e\ndescriptors: ["+
		many(64, "{key: k%d, rate_limit: {unit: day}}")+"]")
	err = doc.EachWindow(func(string, int64) error { return errors.New("bad") })
	lines := strings.Split(fmt.Sprint(err), "\n")
	if last := lines[len(lines)-1]; len(lines) != 101 || !strings.HasPrefix(last, "there may be") {
		t.Errorf("%d errors, the last %s", len(lines), last)
	}
}

func TestBook(t *testing.T) {
	var b rules.Book
	if _, _, known := b.Domain("d"); known || b.Rules() != nil {
		t.Error("an empty book knows rules")
	}
	b.Set(read(t, "rules: [{name: a, limits: [1/1s]}]\ndomain: d"), 7)
	if d, _, known := b.Domain("d"); d == nil || !known || b.Rules().Find([]byte("a")) == nil ||
		b.Rules().Version() != 7 {
		t.Error("what was set is not in force")
	}
	if d, _, known := b.Domain("e"); d != nil || !known {
		t.Error("found a domain that does not exist")
	}
}

func TestOverridesAndDefaults(t *testing.T) {
	doc := read(t, `rules: [{name: r, namespace: sms, default: true, limits: [5/1m], overrides: [
		{key: vip, limits: [50/1m, 900/24h]}, {prefix: corp-, limits: [9/2h]}]}]`)
	if got := doc.Rules.Defaults([]byte("sms")); len(got) != 1 || got[0].Name != "r" {
		t.Errorf("defaults %v", got)
	}
	r := doc.Rules.Find([]byte("r"))
	for key, want := range map[string]string{"a": "[{60000 5 1m <nil>}]",
		"corp-a": "[{7200000 9 2h <nil>}]",
		"vip":    "[{60000 50 1m <nil>} {86400000 900 24h <nil>}]"} {
		if got := fmt.Sprint(r.For([]byte(key))); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if got := fmt.Sprint(windowsOf(doc)); got != "[60000 60000 86400000 7200000]" {
		t.Errorf("windows %s", got)
	}
}

// TestDistinct reads limits on distinct values: a single one, a list, together with limits, and in
// overrides.
func TestDistinct(t *testing.T) {
	doc := read(t, `rules:
- {name: one, distinct: 5/24h, default: true}
- {name: both, limits: [9/1m], distinct: [2/1h, 5/1d], ban: 1h, overrides: [{key: vip,
  distinct: [50/2h]}, {prefix: corp-, limits: [90/3m], distinct: 7/1m}]}`)
	for name, want := range map[string]string{"one/vip": "[] [{86400000 5 24h <nil>}]",
		"both/a":      "[{60000 9 1m <nil>}] [{3600000 2 1h <nil>} {86400000 5 1d <nil>}]",
		"both/vip":    "[{60000 9 1m <nil>}] [{7200000 50 2h <nil>}]",
		"both/corp-1": "[{180000 90 3m <nil>}] [{60000 7 1m <nil>}]"} {
		of, key, _ := strings.Cut(name, "/")
		r := doc.Rules.Find([]byte(of))
		if got := fmt.Sprint(r.For([]byte(key)), r.DistinctFor([]byte(key))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := doc.Rules.DistinctDefaults(nil); len(got) != 1 || doc.Rules.Defaults(nil) != nil {
		t.Errorf("defaults %v", got)
	}
	if got := fmt.Sprint(windowsOf(doc)); got !=
		"[86400000 60000 3600000 86400000 7200000 180000 60000]" {
		t.Errorf("windows %s", got)
	}
}

// TestNothingIsNoDocument: a text without any document is refused, but a stored one has no rules.
func TestNothingIsNoDocument(t *testing.T) {
	for _, text := range []string{"", "\n", "# rules:\n", "---\n# rules:\n", "~", "[]"} {
		_, err := rules.Read("r.yaml", []byte(text))
		if got := fmt.Sprint(err); got != "r.yaml: there is nothing in it; write rules: [] to "+
			"have no rules" {
			t.Errorf("%q: %s", text, got)
		}
		doc, err := rules.ReadVersion("r.yaml", []byte(text))
		if err != nil || len(doc.Rules.Names()) > 0 {
			t.Errorf("%q is stored: %v", text, err)
		}
	}
	for _, text := range []string{"rules:", "rules: null", "namespaces: {}\nrules: # none yet"} {
		if _, err := rules.Read("r.yaml", []byte(text)); !strings.Contains(fmt.Sprint(err),
			"rules: there is nothing in it; write rules: [] to have no rules") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"rules: []", "{}", "---\nrules: []\n---\n"} {
		read(t, text)
	}
}

// TestJSON checks that a text and its JSON are the same document.
func TestJSON(t *testing.T) {
	for text, want := range map[string]string{
		"": "{}",
		"rules: # why\n- {name: 'a', limits: &l [1/1s], state: off}\n- {name: \"1\", limits: *l}": `{"rules":` +
			`[{"name":"a","limits":["1/1s"],"state":"off"},{"name":"1","limits":["1/1s"]}]}`,
		"rules: []\n---\ndomain: a\ndescriptors: [{key: x, rate_limit: {unit: day, " +
			"requests_per_unit: 0x10, unlimited: false}}]": `[{"rules":[]},{"domain":"a","descriptors":` +
			`[{"key":"x","rate_limit":{"unit":"day","requests_per_unit":"0x10","unlimited":false}}]}]`,
		"rules: ~": `{"rules":null}`,
		`{"rules":[{"name":"a","limits":["1/1s"],"overrides":` +
			`[{"key":"\ud83d\ude00","limits":["2/1s"]}]}]}`: `{"rules":` +
			`[{"name":"a","limits":["1/1s"],"overrides":[{"key":"😀","limits":["2/1s"]}]}]}`,
	} {
		got, err := rules.JSON([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%q: %s, %v\nwant %s", text, got, err, want)
		}
		again, err := rules.JSON(got)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s: again %s, %v", got, again, err)
		}
	}
	for _, text := range []string{"rules: [", "a: &a [*a]"} {
		if got, err := rules.JSON([]byte(text)); err == nil {
			t.Errorf("%q: %.40s", text, got)
		}
	}
}

// FuzzRead checks that a file is either read, or refused with the place of every mistake.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"", "---\n---\n", "rules: [{name: a, limits: [1/1s], state: off}]",
		"domain: a\ndescriptors: &d [{key: x, value: y*, share_threshold: true, descriptors: *d}]",
		"domain: a\ndescriptors: [{key: x, rate_limit: {unit: day, replaces: [{name: n}]}}]",
		limited("unit: month, unit_multiplier: 4294967295"),
		"? [a]\n: b", "rules: &a [*a]", "- - -", "!!binary x: y", "<<: {rules: []}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc, err := rules.Read("f", []byte(text))
		if (doc == nil) != (err != nil) {
			t.Fatalf("%q: %v, %v", text, doc, err)
		}
		if err == nil {
			if slices.ContainsFunc(windowsOf(doc), func(ms int64) bool { return ms < 1 }) {
				t.Errorf("%q: windows of %d ms", text, windowsOf(doc))
			}
			return
		}
		if !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%q: a mistake without its file: %v", text, err)
		}
	})
}
