package config_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/config"
)

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
	if err := mustParse(t, []string{"--config", list}, nil).Print(&out); err != nil {
		t.Fatal(err)
	}
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
		_, err := config.Parse([]string{"--trusted-proxies", text}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
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
		_, err := config.Parse([]string{"--decisions-sample", text}, nil)
		if err == nil || !strings.Contains(err.Error(), "--decisions-sample: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
