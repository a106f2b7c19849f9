package deploytest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestEveryAlertHasARunbook checks that the alerts, the sections of docs/operations.md about them,
// and their unit tests are the same, and that each alert names its section.
func TestEveryAlertHasARunbook(t *testing.T) {
	doc := read(t, "docs", "operations.md")
	var sections, names []string
	for _, m := range regexp.MustCompile(`(?m)^### (Twotier\w+)$`).FindAllStringSubmatch(doc, -1) {
		sections = append(sections, m[1])
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		want := "docs/operations.md#" + strings.ToLower(a.Alert)
		if a.Annotations["runbook"] != want || a.Annotations["summary"] == "" {
			t.Errorf("%s: annotations %v, want a summary and %s", a.Alert, a.Annotations, want)
		}
	}
	slices.Sort(sections)
	slices.Sort(names)
	if !slices.Equal(sections, names) {
		t.Errorf("sections for %v, alerts %v", sections, names)
	}
	if fire := fired(t); !slices.Equal(fire, names) {
		t.Errorf("the unit tests make %v fire, the alerts are %v", fire, names)
	}
}

// fired returns the names of the alerts that unit tests expect to fire.
func fired(t *testing.T) (names []string) {
	t.Helper()
	var file struct {
		Tests []struct {
			Rules []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	err := yaml.Unmarshal([]byte(read(t, "deploy", "prometheus", "alerts.test.yaml")), &file)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range file.Tests {
		for _, rule := range test.Rules {
			if len(rule.Alerts) > 0 {
				names = append(names, rule.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestAlertsFireInUnitTests lets promtool evaluate each alert on series that make it fire for one
// node and not for another.
func TestAlertsFireInUnitTests(t *testing.T) {
	run(t, "", "promtool", "check", "rules", top("deploy", "prometheus", "alerts.yaml"))
	run(t, "", "promtool", "test", "rules", top("deploy", "prometheus", "alerts.test.yaml"))
}
