package config_test

import (
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/config"
)

func TestParseDuration(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration // -1 for an error
	}{
		{"200ms", 200 * time.Millisecond},
		{"90s", 90 * time.Second},
		{"1.5h", 90 * time.Minute},
		{"0", 0},
		{"7d", 7 * 24 * time.Hour},
		{"2w", 14 * 24 * time.Hour},
		{"1w2d3h", 9*24*time.Hour + 3*time.Hour},
		{"0d", 0},
		{"1d2h3m4s", 24*time.Hour + 2*time.Hour + 3*time.Minute + 4*time.Second},
		{"106751d", 106751 * 24 * time.Hour},
		{"106752d", -1},
		{"106751d23h48m", -1},
		{"4294967296d", -1},
		{"", -1},
		{"d", -1},
		{"1", -1},
		{"-1s", -1},
		{"+1s", -1},
		{"1d-1s", -1},
		{"-1d", -1},
		{"1d1d", -1},
		{"2h1d", -1},
		{"1.5d", -1},
		{" 1s", -1},
		{"1w", 7 * 24 * time.Hour},
		{"1d1w", -1},
		{"1.5w", -1},
		{"15251w", -1},
		{"1mo", -1},
	}
	if _, err := config.ParseDuration("1mo"); err == nil ||
		!strings.Contains(err.Error(), "the window month") {
		t.Errorf("1mo: %v, want the window month named", err)
	}
	for _, test := range tests {
		got, err := config.ParseDuration(test.text)
		if test.want < 0 {
			if err == nil || !strings.Contains(err.Error(), `"`+test.text+`"`) {
				t.Errorf("%q: got %v, %v; want an error that quotes it", test.text, got, err)
			}
		} else if got != test.want || err != nil {
			t.Errorf("%q: got %v, %v; want %v", test.text, got, err, test.want)
		}
	}
}

func TestParseSize(t *testing.T) {
	tests := []struct {
		text string
		want int64
	}{
		{"1048576", 1 << 20},
		{"10b", 10},
		{"100MB", 100e6},
		{"512MiB", 512 << 20},
		{"1GiB", 1 << 30},
		{"1.5gib", 3 << 29},
		{"2 TiB", 2 << 40},
		{"1kB", 1000},
		{"", -1},
		{"GiB", -1},
		{"1G", -1},
		{"1iB", -1},
		{"1MBB", -1},
		{"-1MB", -1},
		{"NaN", -1},
		{"InfB", -1},
		{"9999999999TiB", -1},
	}
	for _, test := range tests {
		got, err := config.ParseSize(test.text)
		if (err != nil) != (test.want < 0) || err == nil && got != test.want {
			t.Errorf("%q: got %d, %v; want %d", test.text, got, err, test.want)
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
		if err := c.Print(&out); err != nil {
			t.Fatal(err)
		}
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
