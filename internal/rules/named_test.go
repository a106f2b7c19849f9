package rules_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// TestASingleLimitNeedsNoList reads limits without the brackets of a list.
func TestASingleLimitNeedsNoList(t *testing.T) {
	doc := read(t, `rules:
- {name: text, limits: 3/1m}
- {name: fields, limits: {max: 3, window: 1m}}
- {name: open, limits: {concurrent: 2}}
- {name: other, limits: 3/1m, overrides: [{key: a, limits: 9/1h}]}
- {name: alias, limits: &two 2/1m}
- {name: same, limits: *two}
`)
	for name, want := range map[string]string{
		"text": "[{60000 3 1m <nil>}] 0", "fields": "[{60000 3 1m <nil>}] 0", "open": "[] 2",
		"other": "[{3600000 9 1h <nil>}] 0", "same": "[{60000 2 1m <nil>}] 0",
	} {
		r := doc.Rules.Find([]byte(name))
		if got := fmt.Sprint(r.For([]byte("a")), r.Concurrent); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestLimitsHavePlaces lists the limits of a document with every spelling of a limit: the digits of
// each maximum stand at its place, unless an alias or another notation puts them elsewhere.
func TestLimitsHavePlaces(t *testing.T) {
	const text = "# é 15/1m\nrules:\n- {name: a, limits: [15/1m, \"50/24h\"]}\n" +
		"- name: b\n  limits: 7/90s # 8\n  distinct: [3/24h]\n" +
		"- name: c\n  limits:\n  - {window: month, zone: Europe/Lisbon, max: 1000}\n" +
		"  - max: '20'\n    window: 1m\n  - {concurrent: 5}\n" +
		"  overrides: [{key: k, limits: [99/1m, 98/24h]}]\n" +
		"- {name: d, limits: &x [12/1m]}\n- {name: e, limits: *x, concurrent: 4}\n"
	raw, err := rules.Limits([]byte(text))
	must.Succeed(t, err)
	var list []struct {
		Rule, Window, At string
		Max              int64
	}
	must.Succeed(t, json.Unmarshal(raw, &list))
	lines := strings.Split(text, "\n")
	var got []string
	for _, l := range list {
		place := strings.Split(l.At, ":")
		line, err := strconv.Atoi(place[1])
		must.Succeed(t, err)
		column, err := strconv.Atoi(place[2])
		must.Succeed(t, err)
		digits := strings.TrimLeft(lines[line-1][column-1:], `"'&x [`)
		if !strings.HasPrefix(digits, strconv.FormatInt(l.Max, 10)) {
			t.Errorf("%+v: at its place stands %q", l, digits)
		}
		got = append(got, l.Rule+" "+strconv.FormatInt(l.Max, 10)+"/"+l.Window)
	}
	want := []string{"a 15/1m", "a 50/24h", "b 7/90s", "c 1000/month@Europe/Lisbon", "c 20/1m",
		"d 12/1m", "e 12/1m"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(list); n > 1 && list[n-1].At != list[n-2].At {
		t.Errorf("an alias has another place: %+v", list[n-2:])
	}
	if none, err := rules.Limits(nil); err != nil || string(none) != "[]" {
		t.Errorf("without rules: %s %v", none, err)
	}
}

// TestConcurrent reads limits on how many holds are open, and refuses wrong ones with their place.
func TestConcurrent(t *testing.T) {
	d := read(t, "rules:\n- {name: calls, limits: [15/1m, {concurrent: 5}], default: true}\n"+
		"- {name: alone, concurrent: 1, namespace: x, default: true}\n")
	calls, alone := d.Rules.Find([]byte("calls")), d.Rules.Find([]byte("alone"))
	if calls.Concurrent != 5 || len(calls.Limits) != 1 || alone.Concurrent != 1 ||
		len(alone.Limits) != 0 || !alone.JudgesEvents() {
		t.Errorf("%+v, %+v", calls, alone)
	}
	if of := d.Rules.Defaults([]byte("x")); len(of) != 1 || of[0] != alone {
		t.Errorf("the default rules are %v", of)
	}
	const override = "limits: [1/1m], overrides: [{key: k, limits: [{concurrent: 1}]}]"
	for _, wrong := range [][2]string{
		{"limits: [{concurrent: 0}]", `:2:35: concurrent: "0" is not a number`},
		{"limits: [{concurrent: x}]", `:2:35: concurrent: "x" is not a number`},
		{"limits: [{concurrent: 1}, {concurrent: 2}]", ":2:39: concurrent: given twice"},
		{"concurrent: 0", `:2:25: concurrent: "0" is not a number`},
		{"limits: [{concurrent: 1}], concurrent: 2", ":2:52: concurrent: given twice"},
		{"limits: [{concurrent: 1, max: 2}]", `:2:23: unknown key "concurrent"; a limit`},
		{"distinct: [{concurrent: 1}]", `:2:25: unknown key "concurrent"; a limit`},
		{override, "only the rule itself has {concurrent: 1}"},
	} {
		fails(t, "rules:\n- {name: r, "+wrong[0]+"}\n", wrong[1])
	}
}

func TestCalendarLimits(t *testing.T) {
	doc := read(t, `
rules:
  - name: quota
    limits:
      - 50/day@Asia/Shanghai
      - 1000/month
      - {max: 2000, window: month, zone: Europe/Lisbon, anchor: 14}
      - {window: week, max: 300, anchor: 7}
      - {max: 15, window: 2w}
      - {"window":"day","max":9,"zone":"UTC"}
`)
	var got []string
	for _, l := range doc.Rules.Find([]byte("quota")).Limits {
		got = append(got, fmt.Sprintf("%d/%s=%v (%d)", l.Max, l.Text, l.Period, l.Window))
	}
	want := []string{"50/day@Asia/Shanghai=day@Asia/Shanghai (0)", "1000/month=month (0)",
		"2000/month.14@Europe/Lisbon=month.14@Europe/Lisbon (0)", "300/week.7=week.7 (0)",
		"15/2w=<nil> (1209600000)", "9/day=day (0)"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
	windows := windowsOf(doc)
	for i := range windows {
		windows[i] /= 3_600_000
	}
	if fmt.Sprint(windows) != "[24 744 745 168 336 24]" {
		t.Errorf("the longest windows in hours: %v", windows)
	}
}

func TestCalendarMistakesHaveTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"[5/day@Nowhere]":                             `2:22: limit: zone: unknown time zone "Nowhere"`,
		"[5/month.32]":                                `2:22: limit: anchor: 32, want 1 to 31`,
		"[5/1mo]":                                     `2:22: limit: "1mo": a month has no fixed length`,
		"[{max: 5, window: month, zone: Mars}]":       `limit: zone: unknown time zone "Mars"`,
		"[{max: 5, window: month, anchor: 40}]":       `limit: anchor: 40, want 1 to 31`,
		"[{max: 5, window: month, anchor: first}]":    `2:54: anchor: "first" is not a whole number`,
		"[{max: 5, window: 1m, zone: UTC}]":           `2:39: window: with zone or anchor it is hour`,
		"[{max: 5, window: day@UTC, zone: UTC}]":      `window: with zone or anchor it is hour`,
		"[{window: day}]":                             `2:22: limit: want max and window`,
		"[{max: -1, window: day}]":                    `2:28: max: "-1" is not a number from 0`,
		"[{max: 5, window: day, tz: UTC}]":            `unknown key "tz"; a limit has max and window`,
		"[5/1m], distinct: 5/day":                     `distinct: different values have no calendar windows such as day`,
		"[5/1m], distinct: [{max: 1, window: month}]": `distinct: different values have no calendar windows such as month`,
	} {
		fails(t, "rules:\n- {name: r, limits: "+text+"}\n", want)
	}
}

func TestCalendarDescriptors(t *testing.T) {
	doc := read(t, limited("unit: MONTH, requests_per_unit: 9, calendar: Europe/Lisbon"))
	limit, _ := doc.Domain("a").Find([]rules.Entry{{Key: "x", Value: "y"}})
	if got := limit.Compared(5); got.Max != 5 || got.Window != 0 || got.Period == nil ||
		got.Period.String() != "month@Europe/Lisbon" {
		t.Errorf("%+v", got)
	}
	if l := doc.Source().Limits[0]; l.Text != "month@Europe/Lisbon" || l.Period == nil {
		t.Errorf("%+v", l)
	}
	for text, want := range map[string]string{
		"unit: minute, calendar: UTC":                      `"minute" is not one of hour`,
		"unit: year, calendar: UTC":                        `"year" is not one of hour`,
		"unit: day, calendar: true":                        `unknown time zone "true"`,
		"unit: day, unit_multiplier: 2, calendar: UTC":     "without unlimited and unit_multiplier",
		"unit: day, requests_per_unit: 1, calendar: [UTC]": "calendar is not a single value",
	} {
		fails(t, limited(text), want)
	}
}

// TestBookInShadow puts a document in force in a book with a namespace in shadow: its rules that
// are on are in shadow.
func TestBookInShadow(t *testing.T) {
	const text = "rules:\n- {name: on, limits: [9/1m], ban: 1m, charge: always}\n" +
		"- {name: off, limits: [9/1m], state: off}\n" +
		"- {name: usual, limits: [8/1m], default: true}\n" +
		"- {name: sms, namespace: sms, limits: [9/1m]}\n"
	book := rules.Book{Shadow: twotier.Shadow{"default": true, "sms": false}}
	book.Set(read(t, text), 4)
	set := book.Rules()
	for name, want := range map[string]string{"on": "shadow", "off": "off", "usual": "shadow",
		"sms": "on"} {
		if r := set.Find([]byte(name)); r.State.String() != want || r.Bans() || r.Charges() {
			t.Errorf("%s is %v", name, r.State)
		}
	}
	if usual := set.Defaults(nil); len(usual) != 1 || usual[0].State != twotier.RuleShadow ||
		set.Version() != 4 {
		t.Errorf("the default rules are %v, of version %d", usual, set.Version())
	}
	if s := (twotier.Shadow{}); s.In(nil) || s.In([]byte("sms")) || (twotier.Shadow)(nil).In(nil) {
		t.Error("an empty Shadow has namespaces")
	}
}

// TestWarn reads warning levels, and refuses texts that are no whole percentage of a limit.
func TestWarn(t *testing.T) {
	doc := read(t, "rules:\n- {name: a, limits: [9/1m], warn: 80%}\n"+
		"- {name: b, distinct: 5/24h, warn: 1%, state: shadow}\n"+
		"- {name: c, limits: [9/1m], warn: 100%}\n- {name: d, limits: [9/1m]}\n")
	for name, want := range map[string]int64{"a": 80, "b": 1, "c": 100, "d": 0} {
		if got := doc.Rules.Find([]byte(name)).Warn; got != want {
			t.Errorf("%s warns from %d%%, want %d%%", name, got, want)
		}
	}
	for _, text := range []string{"80", "0%", "101%", "-5%", "12.5%", "+8%", "8 %", "''",
		"80%%"} {
		fails(t, "rules:\n- {name: a, limits: [9/1m], warn: "+text+"}\n", "r.yaml:2:35: warn: "+
			strconv.Quote(strings.Trim(text, "'"))+
			" is not a whole percentage from 1% to 100%, such as 80%")
	}
	fails(t, "rules: [{name: a, limits: [9/1m], warn: [8%]}]", "r.yaml:1:41: warn")
}

// TestWarnOfDescriptors reads warning levels beside limits of descriptors, and refuses fields about
// a limit where there is none.
func TestWarnOfDescriptors(t *testing.T) {
	doc := read(t, "domain: d\ndescriptors:\n"+
		"- {key: a, warn: 80%, rate_limit: {name: n, unit: day, requests_per_unit: 9}}\n"+
		"- {key: b, warn: 1%, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 9}}\n"+
		"- {key: c, rate_limit: {unit: day, requests_per_unit: 9}}\n")
	for descriptor, want := range map[string]twotier.Rule{
		"a=1": {Name: "n", Namespace: "d", Warn: 80},
		"b=1": {Namespace: "d", Warn: 1, State: twotier.RuleShadow},
		"c=1": {Namespace: "d"},
	} {
		limit, _ := doc.Domain("d").Find(entries(descriptor))
		if got := limit.Rule("d"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", descriptor, got, want)
		}
	}
	const none = "the descriptor has no limit; want it beside a rate_limit with requests_per_unit"
	for descriptor, want := range map[string]string{
		"{key: a, warn: 80, rate_limit: {unit: day}}": `warn: "80" is not a whole percentage ` +
			"from 1% to 100%, such as 80%",
		"{key: a, warn: 80%}":                                     "warn: " + none,
		"{key: a, warn: 80%, rate_limit: {unlimited: true}}":      "warn: " + none,
		"{key: a, warn: 80%, descriptors: [{key: b}]}":            "warn: " + none,
		"{key: a, charge: always}":                                "charge: " + none,
		"{key: a, charge: always, rate_limit: {unlimited: true}}": "charge: " + none,
	} {
		at := "r.yaml:3:18: "
		if strings.HasPrefix(want, "charge") {
			at = "r.yaml:3:20: "
		}
		fails(t, "domain: d\ndescriptors:\n- "+descriptor+"\n", at+want)
	}
}
