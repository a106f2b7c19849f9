package lint_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/leaparray"
)

// ladders returns the ladders of four namespaces: default, fine and exact, of which default and
// fine keep no milliseconds, and usual, which has the default settings.
func ladders(t *testing.T) lint.Ladders {
	t.Helper()
	minutes := []leaparray.Level{{Width: time.Second, Count: 60}, {Width: time.Minute, Count: 60},
		{Width: 15 * time.Minute, Count: 96}}
	cfg := config.Config{Namespaces: map[string]config.Namespace{
		"default": {Levels: minutes},
		"fine": {Levels: []leaparray.Level{{Width: 100 * time.Millisecond, Count: 20},
			{Width: time.Second, Count: 60}}},
		"exact": {Levels: minutes, Exact: 64},
		"usual": {Levels: leaparray.DefaultLevels(), Exact: leaparray.DefaultExact},
	}}
	all, err := lint.LaddersOf(&cfg)
	must.Succeed(t, err)
	return all
}

// found formats warnings as "LINE:COLUMN code", separated by commas.
func found(list []warning.Warning) string {
	var all []string
	for _, w := range list {
		all = append(all, strings.TrimPrefix(w.At, "f:")+" "+string(w.Code))
	}
	return strings.Join(all, ", ")
}

// TestEveryRuleThatMeansSomethingElseWarns has valid rules, one on each line from the second, and
// the warnings about them: line, column and code.
func TestEveryRuleThatMeansSomethingElseWarns(t *testing.T) {
	const office = "{name: a, limits: [9/1m], overrides: [{limits: [8/1m], "
	for _, tt := range []struct{ rules, want string }{
		// Windows of few buckets.
		{"{name: a, limits: [10/1s]}", "2:22 coarse-window"},
		{"{name: a, limits: [10/9s]}", "2:22 coarse-window"},
		{"{name: a, limits: [10/10s]}", ""},
		{"{name: a, limits: [10/1m]}", ""},
		{"{name: a, limits: [10/60001ms]}", ""},
		{"{name: a, limits: [10/61s]}", "2:22 coarse-window"},
		{"{name: a, limits: [10/10m, 20/1h, 90/24h]}", ""},
		{"{name: a, limits: [10/1m, 90/2h]}", "2:29 coarse-window"},
		{"{name: a, limits: [0/1s]}", ""},
		{"{name: a, distinct: 5/1s}", ""},
		{"{name: a, namespace: fine, limits: [10/1s]}", ""},
		{"{name: a, namespace: fine, limits: [10/900ms]}", "2:39 coarse-window"},
		{"{name: a, limits: [9/1m], overrides: [{key: k, limits: [9/1s]}]}",
			"2:41 coarse-window"},
		{"{name: a, namespace: exact, limits: [64/1s]}", ""},
		{"{name: a, namespace: exact, limits: [65/1s]}", "2:40 coarse-window"},
		{"{name: a, namespace: exact, limits: [64/1s, 65/2h]}", "2:47 coarse-window"},
		{"{name: a, namespace: usual, limits: [64/100ms, 900/1s, 999/100s, 9999/24h]}", ""},
		{"{name: a, namespace: usual, limits: [65/999ms]}", "2:40 coarse-window"},
		// Rules that share counts.
		{"{name: a, limits: [9/1m]}\n{name: b, limits: [9/1m]}", "3:10 shared-counts"},
		{"{name: a, limits: [9/1m]}\n{name: b, namespace: default, limits: [9/1m]}",
			"3:10 shared-counts"},
		{"{name: a, limits: [9/1m]}\n{name: b, namespace: b, limits: [9/1m]}", ""},
		{"{name: a, limits: [9/1m]}\n{name: b, limits: [9/1m], state: shadow}", ""},
		{"{name: a, limits: [9/1m]}\n{name: b, limits: [9/1m], state: off}", ""},
		{"{name: a, limits: [9/1m]}\n{name: b, distinct: 9/1m}", ""},
		{"{name: a, limits: [9/1m], default: true}\n{name: b, limits: [10/1h], default: true}",
			""},
		{"{name: a, limits: [9/1m], default: true}\n{name: b, limits: [8/1h]}",
			"3:10 shared-counts"},
		// Limits and rules that never refuse.
		{"{name: a, limits: [9/1m, 9/1h]}", "2:22 never-refuses"},
		{"{name: a, limits: [9/1m, 8/1h]}", "2:22 never-refuses"},
		{"{name: a, limits: [9/1m, 10/1h]}", ""},
		{"{name: a, limits: [9/1m, 9/1m]}", "2:28 never-refuses"},
		{"{name: a, limits: [9/1m, 20/1m]}", "2:28 never-refuses"},
		{"{name: a, limits: [9/1m], distinct: 5/1h}", ""},
		{"{name: a, distinct: [9/1m, 9/1h]}", "2:24 never-refuses"},
		{"{name: a, limits: [9/1m], overrides: [{key: k, limits: [99/1m]}]}", ""},
		{"{name: a, limits: [9/1m], default: true}\n{name: b, limits: [10/1m], default: true}",
			"3:10 never-refuses"},
		{"{name: a, limits: [9/1m], default: true}\n{name: b, limits: [9/1m], default: true}",
			"3:10 never-refuses"},
		{"{name: a, limits: [9/1m], default: true, state: shadow}\n" +
			"{name: b, limits: [10/1m], default: true}", ""},
		{"{name: a, limits: [9/1m], default: true}\n" +
			"{name: b, limits: [10/1m], default: true, overrides: [{key: k, limits: [1/1m]}]}",
			""},
		// Overrides for addresses.
		{office + "key: 10.0.0.0/8}]}", "2:41 override-never-matches"},
		{office + "prefix: 10.0.0.0/8}]}", "2:41 override-never-matches"},
		{office + "key: 10.0.0.1}]}", ""},
		{office + "prefix: 10.0.0.1}]}", ""},
		{office + "key: '2001:db8::/64'}]}", ""},
		{office + "key: '2001:DB8::/64'}]}", "2:41 override-never-matches"},
		{office + "key: '2001:db8::7'}]}", "2:41 override-never-matches"},
		{office + "key: '::ffff:192.0.2.1'}]}", "2:41 override-never-matches"},
		{office + "key: '2001:db8::/48'}]}", "2:41 override-never-matches"},
		{office + "key: alice}]}", ""},
	} {
		text := "rules:\n- " + strings.ReplaceAll(tt.rules, "\n", "\n- ") + "\n"
		expect(t, text, tt.want)
	}
}

// TestEveryDescriptorThatMeansSomethingElseWarns is the same test for descriptors of Envoy.
func TestEveryDescriptorThatMeansSomethingElseWarns(t *testing.T) {
	const second = "{key: k, rate_limit: {requests_per_unit: 9, unit: second"
	for _, tt := range []struct{ descriptor, want string }{
		{second + "}}", "3:24 coarse-window"},
		{second + ", unit_multiplier: 10}}", ""},
		{"{key: k, rate_limit: {unit: second}}", ""},
		{"{key: k, rate_limit: {unit: minute, requests_per_unit: 9}}", ""},
		{"{key: k, value: a*b}", ""},
		{"{key: k*, value: b}", ""},
		{"{key: k*}", ""},
		{"{key: '*k'}", "3:3 dead-wildcard"},
		{"{key: k, value: a*}", ""},
		{"{key: k, detailed_metric: false, quota_mode: false}", ""},
		{"{key: k, detailed_metric: true}", "3:12 no-effect"},
		{"{key: k, value_to_metric: true}", "3:12 no-effect"},
		{"{key: k, metadata: {a: b}}", "3:12 no-effect"},
		{"{key: k, unit: minute}", "3:12 no-effect"},
		{"{key: k, metadata: {a: b}, descriptors: [{key: l, metadata: {c: d}}]}", "3:12 no-effect"},
		{"{key: accept, value: '*/*'}", ""},
		{"{key: Authorization, rate_limit: {unit: minute}}", "3:3 secret-key"},
		{"{key: x_api_key, rate_limit: {unit: minute}}", "3:3 secret-key"},
		{"{key: authorization, value: none}", ""},
	} {
		expect(t, "domain: d\ndescriptors:\n- "+tt.descriptor+"\n", tt.want)
	}
}

// read reads a valid document.
func read(t *testing.T, text string) *rules.Document {
	t.Helper()
	doc, err := rules.Read("f", []byte(text))
	if err != nil {
		t.Fatalf("%s%v", text, err)
	}
	return doc
}

// expect fails the test unless a document causes exactly these warnings.
func expect(t *testing.T, text, want string) {
	t.Helper()
	list := lint.Rules(read(t, text), ladders(t))
	if got := found(list); got != want {
		t.Errorf("%swarns of %q, want %q", text, got, want)
	}
	for _, w := range list {
		if w.Reason == "" || w.Instead == "" {
			t.Errorf("%snothing to do about %v", text, w)
		}
	}
}

// TestRemediesOfCoarseWindowsWork draws ladders, limits and windows: a limit of up to 256 causes no
// warning with the settings that the warning about it proposes.
func TestRemediesOfCoarseWindowsWork(t *testing.T) {
	seed := seed.First()
	random := rand.New(rand.NewPCG(seed, 0))
	proposed := 0
	for range 2000 {
		ladder := randomLadder(random)
		window, most := random.Int64N(ladder.Span())+1, 1+random.Int64N(500)
		doc := read(t, fmt.Sprintf("rules: [{name: a, limits: [%d/%dms]}]", most, window))
		all := lint.Ladders{"default": ladder}
		list := lint.Rules(doc, all)
		if all.IsCoarse("", most, window) != (len(list) == 1) {
			t.Fatalf("seed %d: %v: %d in %d ms: %v", seed, ladder, most, window, list)
		}
		exact := 0
		if len(list) == 0 || most > leaparray.MaxExact {
			continue
		}
		_, err := fmt.Sscanf(list[0].Instead, "namespaces: {default: {exact: %d}}", &exact)
		must.Succeed(t, err)
		better, err := leaparray.NewLadder(exact, ladder.Levels()...)
		must.Succeed(t, err)
		if len(lint.Rules(doc, lint.Ladders{"default": better})) > 0 {
			t.Fatalf("seed %d: %v: %d in %d ms: %v", seed, ladder, most, window, better)
		}
		proposed++
	}
	if proposed < 100 {
		t.Errorf("only %d remedies were proposed", proposed)
	}
}

// TestEverySettingThatDoesNothingWarns has valid settings, each with its warnings.
func TestEverySettingThatDoesNothingWarns(t *testing.T) {
	file := must.File(t, "c.yaml", "max-lag: 5s\n")
	shadow := must.File(t, "s.yaml",
		"namespaces: {sms: {shadow: true}, x: {shadow: false}, y: {exact: 9}}\n")
	inherited := must.File(t, "i.yaml",
		"namespaces: {default: {shadow: true}, sms: {exact: 9}}\n")
	const redis = "--redis=redis://h"
	for _, tt := range []struct {
		args, environ []string
		want          string
	}{
		{},
		{args: []string{"--max-lag=5s"}, want: "--max-lag no-effect"},
		{args: []string{"--config", file}, want: file + ":1:10 no-effect"},
		{args: []string{"--max-lag=5s", redis}},
		{args: []string{"--max-lag=5s", redis, "--mode=redis"}, want: "--max-lag no-effect"},
		{args: []string{"--hot-rate=5", redis}, want: "--hot-rate no-effect"},
		{args: []string{"--decisions-sample=0.1"}, want: "--decisions-sample no-effect"},
		{args: []string{"--trusted-proxies=10.0.0.0/8,::1"}},
		{args: []string{"--trusted-proxies=10.0.0.0/8,::/0"},
			want: "--trusted-proxies trusts-everybody"},
		{args: []string{redis, "--gossip=127.0.0.1:1", "--join=127.0.0.1:1"},
			want: "--join joins-itself"},
		{args: []string{redis, "--gossip=127.0.0.1:1", "--gossip-advertise=h:1",
			"--join=h:1,127.0.0.1:1"}, want: "--join joins-itself"},
		{args: []string{redis, "--gossip=127.0.0.1:1", "--join=127.0.0.1:1,127.0.0.1:2"}},
		{args: []string{redis, "--gossip=127.0.0.1:1"}},
		{args: []string{"--shadow"}, want: "--shadow refuses-nothing"},
		{args: []string{"--shadow", "--config", shadow}, want: "--shadow refuses-nothing"},
		{args: []string{"--shadow=false"}},
		{environ: []string{"TWOTIER_SHADOW=1"}, want: "TWOTIER_SHADOW refuses-nothing"},
		{args: []string{"--config", shadow}, want: shadow + ":1:28 refuses-nothing"},
		{args: []string{"--config", inherited}, want: inherited + ":1:32 refuses-nothing"},
		{environ: []string{"TWOTIER_LISTN=1"},
			want: "TWOTIER_LISTN unknown-variable a name that"},
		{environ: []string{"TWOTIER_FOO=secret", "PATH=/bin"},
			want: "TWOTIER_FOO unknown-variable a name that"},
		{environ: []string{"TWOTIER_SERVICE_HOST=10.0.0.1", "TWOTIER_SERVICE_PORT=8080",
			"TWOTIER_SERVICE_PORT_HTTP=8080", "TWOTIER_PORT=tcp://10.0.0.1:8080",
			"TWOTIER_PORT_8080_TCP=tcp://10.0.0.1:8080", "TWOTIER_PORT_8080_TCP_ADDR=10.0.0.1",
			"TWOTIER_REDIS_PORT_6379_TCP_PROTO=tcp", "TWOTIER_REDIS_SERVICE_HOST=10.0.0.2",
			"TWOTIER_TOKEN=t", "TWOTIER_SERVER=s", "TWOTIER_NODE=a", "TWOTIER_MAX_LAG="}},
	} {
		cfg, err := config.Parse(tt.args, tt.environ)
		if err != nil {
			t.Errorf("%v: %v", tt, err)
			continue
		}
		var got []string
		for _, w := range lint.Settings(&cfg) {
			one := w.At + " " + string(w.Code)
			if w.Code == warning.UnknownVariable {
				one += " " + w.Instead
			}
			got = append(got, one)
			if strings.Contains(w.String(), "secret") {
				t.Errorf("%v shows a value", w)
			}
		}
		if all := strings.Join(got, ", "); !strings.HasPrefix(all, tt.want) || len(got) > 1 ||
			(all == "") != (tt.want == "") {
			t.Errorf("%v %v: warns of %q, want %q", tt.args, tt.environ, all, tt.want)
		}
	}
}
