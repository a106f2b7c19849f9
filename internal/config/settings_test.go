package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/testing/must"
)

// TestNotifyURL accepts URLs of webhooks, and refuses other texts without showing any part of them.
// Printed settings show the scheme and the host alone.
func TestNotifyURL(t *testing.T) {
	for text, want := range map[string]string{
		"": `""`, "https://hooks.example/hunter2?token=hunter2": "https://hooks.example/***",
		"http://user:hunter2@127.0.0.1:8080": "http://127.0.0.1:8080/***",
	} {
		c := mustParse(t, []string{"--notify-url", text}, nil)
		var printed strings.Builder
		must.Succeed(t, c.Print(&printed))
		if c.NotifyURL != text || strings.Contains(printed.String(), "hunter2") ||
			!strings.Contains(printed.String(), "\nnotify-url: "+want+" # flag\n") {
			t.Errorf("%q: %q, printed\n%s", text, c.NotifyURL, printed.String())
		}
	}
	for text, want := range map[string]string{
		"hooks.example/hunter2": "not a URL with http:// or https:// and a host",
		"ftp://hunter2":         "not a URL with http:// or https:// and a host",
		"http:///hunter2":       "not a URL with http:// or https:// and a host",
		"http://h/%zzhunter2":   "not a URL; want",
		"http://h/#hunter2":     "a URL with a fragment",
	} {
		mustFail(t, nil, []string{"TWOTIER_NOTIFY_URL=" + text}, "hunter2", "--notify-url: "+want)
	}
}

// TestOTLPEndpoint names the collector in every way, and in several ways at once.
func TestOTLPEndpoint(t *testing.T) {
	const flag, own, spans, all = "--otlp-endpoint=http://flag:4318",
		"TWOTIER_OTLP_ENDPOINT=https://own/", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://spans/x",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://all:4318/base/"
	for _, tt := range []struct {
		args, environ []string
		want          string
	}{
		{nil, nil, ""},
		{nil, []string{all}, "http://all:4318/base/v1/traces"},
		{nil, []string{all, spans}, "http://spans/x"},
		{nil, []string{all, spans, own}, "https://own/v1/traces"},
		{[]string{flag}, []string{all, spans, own}, "http://flag:4318/v1/traces"},
		{nil, []string{all, spans, "OTEL_SDK_DISABLED=true"}, ""},
		{[]string{flag}, []string{"OTEL_SDK_DISABLED=true"}, "http://flag:4318/v1/traces"},
	} {
		c, err := config.Parse(tt.args, tt.environ)
		if err != nil || c.OTLPEndpoint != tt.want {
			t.Errorf("%q %q: %v, got %q, want %q", tt.args, tt.environ, err, c.OTLPEndpoint,
				tt.want)
		}
	}
	for _, bad := range []string{"collector:4318", "grpc://x", "http://", "http://x/?a=b",
		"http://user:secret@x", "http://user:secret@x\x7f"} {
		mustFail(t, []string{"--otlp-endpoint", bad}, nil, "secret", "--otlp-endpoint")
	}
}

// TestCollectorOfThePlatform sets the standard variables to values that this server can't use: it
// still starts, and reports why it sends nothing.
func TestCollectorOfThePlatform(t *testing.T) {
	const all, grpc = "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
	file := writeFile(t, "otlp-endpoint: http://file")
	for _, tt := range []struct {
		args, environ  []string
		want, complain string
	}{
		{environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317"},
			complain: "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{environ: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://user:secret@x"},
			complain: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
		{environ: []string{all, grpc}, complain: "gRPC"},
		{environ: []string{all, grpc, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"},
			want: "http://collector:4317/v1/traces"},
		{environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=user:secret@collector:4317"},
			complain: "password"},
		{environ: []string{all, "OTEL_TRACES_EXPORTER=none"}},
		{environ: []string{all, "OTEL_TRACES_EXPORTER=console,otlp"},
			want: "http://collector:4317/v1/traces"},
		{args: []string{"--config", file}, environ: []string{all, grpc},
			want: "http://file/v1/traces"},
		{environ: []string{all, "OTEL_TRACES_EXPORTER=otlp"},
			want: "http://collector:4317/v1/traces"},
		{environ: []string{grpc}},
		{args: []string{"--otlp-endpoint=http://own"}, environ: []string{all, grpc},
			want: "http://own/v1/traces"},
	} {
		c, err := config.Parse(tt.args, tt.environ)
		ignored := c.OTLPIgnored != nil
		if err != nil || c.OTLPEndpoint != tt.want || ignored != (tt.complain != "") {
			t.Errorf("%q %q: %v, got %q, %v, want %q, %q", tt.args, tt.environ, err, c.OTLPEndpoint,
				c.OTLPIgnored, tt.want, tt.complain)
		}
		if text := fmt.Sprint(c.OTLPIgnored); !strings.Contains(text, tt.complain) ||
			strings.Contains(text, "secret") {
			t.Errorf("%q: %s", tt.environ, text)
		}
	}
}

func TestRulesAreAFileOrAList(t *testing.T) {
	list := writeFile(t, "rules:\n- {name: a, limits: [1/1s]}\n")
	path := writeFile(t, "rules: rules.yaml\n")
	for _, tt := range []struct {
		args   []string
		file   string
		inFile bool
	}{
		{[]string{"--config", list}, "", true},
		{[]string{"--config", list, "--rules", "other.yaml"}, "other.yaml", false},
		{[]string{"--config", path}, "rules.yaml", false},
		{nil, "", false},
	} {
		c := mustParse(t, tt.args, nil)
		if c.Rules != tt.file || (c.RuleList != nil) != tt.inFile {
			t.Errorf("%v: file %q, list %v", tt.args, c.Rules, c.RuleList)
		}
	}
	var out strings.Builder
	must.Succeed(t, mustParse(t, []string{"--config", list}, nil).Print(&out))
	again := mustParse(t, []string{"--config", writeFile(t, out.String())}, nil)
	if again.RuleList == nil || again.RuleList.Content[0].Content[1].Value != "a" {
		t.Errorf("printed and read back: %v in\n%s", again.RuleList, out.String())
	}
}

func TestTrustedProxies(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3/8, fd00::1/8,192.0.2.1,::1":  "[10.0.0.0/8 fd00::/8 192.0.2.1/32 ::1/128]",
		"::ffff:127.0.0.1/104,::ffff:10.1.2.3": "[127.0.0.0/8 10.1.2.3/32]",
		"::ffff:0:0/96,::/0":                   "[0.0.0.0/0 ::/0]",
	} {
		c := mustParse(t, []string{"--trusted-proxies", text}, nil)
		if got := fmt.Sprint(c.TrustedProxies); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"10.0.0.0/33":         `"10.0.0.0/33" is not a network`,
		"::ffff:127.0.0.1/8":  `"::ffff:127.0.0.1/8" is neither a network of IPv4 nor`,
		"::ffff:10.0.0.0/95,": `"::ffff:10.0.0.0/95" is neither`,
	} {
		mustFail(t, []string{"--trusted-proxies", text}, nil, "", want)
	}
}

func TestShares(t *testing.T) {
	for text, want := range map[string]string{
		"1": "[1 1 1 1]", "0.25": "[0.25 0.25 0.25 0.25]",
		"refused=1, allowed=0.01, near=.5": "[0.01 1 0 0.5]",
	} {
		c := mustParse(t, []string{"--decisions-sample", text}, nil)
		if got := fmt.Sprint(c.DecisionsSample); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"2": `"2" is not a number from 0 to 1`, "NaN": "is not a number", "-1": "is not a number",
		"denied=1":             `"denied" is not one of allowed, refused`,
		"refused=1,refused=.5": "refused is there twice", "refused=": `"" is not a number`,
	} {
		mustFail(t, []string{"--decisions-sample", text}, nil, "", "--decisions-sample: ", want)
	}
}

// TestInShadow checks which namespaces settings put into shadow.
func TestInShadow(t *testing.T) {
	file := must.File(t, "c.yaml", "namespaces: {sms: {shadow: true}, x: {shadow: false}}\n")
	usual := must.File(t, "d.yaml", "namespaces: {default: {shadow: true}, x: {shadow: false}}\n")
	for _, tt := range []struct {
		args []string
		want string // of the namespaces default, sms, x and y
	}{
		{nil, "false false false false"},
		{[]string{"--shadow"}, "true true true true"},
		{[]string{"--config", file}, "false true false false"},
		{[]string{"--config", usual}, "true true false true"},
		{[]string{"--config", usual, "--shadow"}, "true true true true"},
		{[]string{"--config", file, "--shadow=false"}, "false true false false"},
	} {
		c := mustParse(t, tt.args, nil)
		shadow := c.InShadow()
		var got []any
		for _, ns := range []string{"", "sms", "x", "y"} {
			got = append(got, shadow.In([]byte(ns)))
		}
		if text := strings.TrimSpace(fmt.Sprintln(got...)); text != tt.want ||
			(shadow == nil) != (tt.want == "false false false false") {
			t.Errorf("%v: %s, want %s", tt.args, text, tt.want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"200ms": 200 * time.Millisecond, "90s": 90 * time.Second, "1.5h": 90 * time.Minute,
		"0": 0, "0d": 0, "7d": 7 * day, "1w": 7 * day, "2w": 14 * day,
		"1w2d3h":   9*day + 3*time.Hour,
		"1d2h3m4s": day + 2*time.Hour + 3*time.Minute + 4*time.Second, "106751d": 106751 * day,
	} {
		if got, err := config.ParseDuration(text); got != want || err != nil {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"106752d", "106751d23h48m", "4294967296d", "", "d", "1", "-1s",
		"+1s", "1d-1s", "-1d", "1d1d", "2h1d", "1.5d", " 1s", "1d1w", "1.5w", "15251w", "1mo"} {
		got, err := config.ParseDuration(text)
		if err == nil || !strings.Contains(err.Error(), `"`+text+`"`) ||
			text == "1mo" && !strings.Contains(err.Error(), "the window month") {
			t.Errorf("%q: got %v, %v; want an error that quotes it", text, got, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"1048576": 1 << 20, "10b": 10, "100MB": 100e6, "512MiB": 512 << 20, "1GiB": 1 << 30,
		"1.5gib": 3 << 29, "2 TiB": 2 << 40, "1kB": 1000,
	} {
		if got, err := config.ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "1G", "1iB", "1MBB", "-1MB", "NaN", "InfB",
		"9999999999TiB"} {
		if got, err := config.ParseSize(text); err == nil {
			t.Errorf("%q: got %d", text, got)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add("listen: :0\n# x\nnamespaces: {a: {ladder: [1s x 60, 1m x 60]}}\n")
	f.Add("redis: \"redis://:pw@h:1\" # y\nhosts: [a, b]\nredis-tls-ca: |\n  x\n")
	f.Add("redis: 'redis://:p #  [a7 b]'\n")
	f.Add("redis: rediss://h\nredis-tls-ca: \"\\r \\N\\L \\P\\n x \"\n")
	f.Add("listen: &a 127.0.0.1:1\nrules: [*a]\n")
	f.Add("namespaces: {a: {ladder: &l [1s x 60, 1m x 60]}}\nrules: [*l, &m {a: *l}, *m]\n")
	f.Add("rules: &a [*a]\n")
	f.Add("&a\nrules: [*a]")
	f.Add("rules: [&b [x], &c [*b, *b], &d [*c, *c], {<<: &e {f: *d}}, *e]\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := writeFile(t, text)
		c, err := config.Parse([]string{"--config", path}, nil)
		if err != nil {
			return
		}
		var out strings.Builder
		must.Succeed(t, c.Print(&out))
		again, err := config.Parse([]string{"--config", writeFile(t, out.String())}, nil)
		if err != nil {
			t.Fatalf("%q printed as\n%s: %v", text, out.String(), err)
		}
		if again.Listen != c.Listen || again.RedisTLSCA != c.RedisTLSCA ||
			len(again.Namespaces) != len(c.Namespaces) {
			t.Errorf("%q printed as\n%s", text, out.String())
		}
	})
}
