package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/rules"
)

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
	var windows []int64
	_ = doc.EachWindow(func(_ string, ms int64) error {
		windows = append(windows, ms/3_600_000)
		return nil
	})
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
		_, err := rules.Read("r.yaml", []byte("rules:\n- {name: r, limits: "+text+"}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
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
		_, err := rules.Read("r.yaml", []byte(limited(text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
