package twotier_test

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
)

// zones have their changes at different hours, by an hour and by half of one, in both hemispheres;
// Havana and Beirut at midnight, and Apia has skipped a day.
var zones = []string{"", "Europe/Lisbon", "America/New_York", "Australia/Lord_Howe",
	"Asia/Kathmandu", "America/Havana", "Asia/Beirut", "Pacific/Apia", "Asia/Shanghai"}

// TestPeriodsOfALog compares the period around each quarter of an hour of a year with the one that
// a walk along the clocks of the zone finds.
func TestPeriodsOfALog(t *testing.T) {
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			must.Succeed(t, err)
			walkYear(t, zone, 2011)
			walkYear(t, zone, 2026)
		})
	}
}

// walkYear walks along a year by quarters of an hour. Nothing in it begins between two of them.
func walkYear(t *testing.T, zone *time.Location, year int) {
	t.Helper()
	type walk struct {
		period *twotier.Period
		// label is the period that clocks show, growing with time.
		label func(time.Time) int64
		start int64
		last  int64
	}
	var walks []walk
	for unit, label := range labels {
		period, err := twotier.NewPeriod(unit, zone.String(), twotier.DefaultAnchor)
		must.Succeed(t, err)
		walks = append(walks, walk{period: period, label: label})
	}
	const quarter = 15 * 60_000
	from := time.Date(year-1, 12, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	for ms := from; ms < from+400*24*4*quarter; ms += quarter {
		local := time.UnixMilli(ms).In(zone)
		for i := range walks {
			w := &walks[i]
			if label := w.label(local); label > w.last {
				if w.last != 0 {
					checkPeriod(t, w.period, w.start, ms)
				}
				w.start, w.last = ms, label
			}
		}
	}
}

// labels number the periods of each unit by what clocks and calendars show.
var labels = map[string]func(time.Time) int64{
	"hour": func(at time.Time) int64 {
		return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), 0, 0, 0, time.UTC).Unix()
	},
	"day": func(at time.Time) int64 {
		return time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC).Unix()
	},
	"week": func(at time.Time) int64 {
		day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC).Unix() / 86400
		return (day + 3) / 7 // 1 January 1970 was a Thursday
	},
	"month": func(at time.Time) int64 { return int64(at.Year()*12) + int64(at.Month()) },
}

// checkPeriod fails the test if the period around some moments from start on is not [start, end).
// The first one that a walk finds began before the walk.
func checkPeriod(t *testing.T, p *twotier.Period, start, end int64) {
	t.Helper()
	for _, ms := range []int64{start, start + rand.Int64N(end-start), end - 1} {
		from, to := p.Around(ms)
		first := time.UnixMilli(start).UTC().Format("01-02 15:04") == "12-01 00:00"
		if to != end || from != start && !first {
			t.Fatalf("%v in %s around %v: %v to %v, want %v to %v", p.Unit(), p.Zone(),
				time.UnixMilli(ms).UTC(), time.UnixMilli(from).UTC(), time.UnixMilli(to).UTC(),
				time.UnixMilli(start).UTC(), time.UnixMilli(end).UTC())
		}
		if to-from > p.Longest() {
			t.Fatalf("a %v of %v in %s, longer than Longest", p.Unit(),
				time.Duration(to-from)*time.Millisecond, p.Zone())
		}
	}
}

func TestAnchors(t *testing.T) {
	for _, c := range []struct {
		unit, zone       string
		anchor           int
		at, start, after string
	}{
		{"month", "Europe/Lisbon", 14, "2026-07-14T00:00:00+01:00", "2026-07-14T00:00:00+01:00",
			"2026-08-14T00:00:00+01:00"},
		{"month", "Europe/Lisbon", 14, "2026-07-13T23:59:59+01:00", "2026-06-14T00:00:00+01:00",
			"2026-07-14T00:00:00+01:00"},
		{"month", "", 31, "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"month", "", 31, "2028-02-28T12:00:00Z", "2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"month", "", 30, "2026-12-31T00:00:00Z", "2026-12-30T00:00:00Z", "2027-01-30T00:00:00Z"},
		{"week", "", 7, "2026-11-28T12:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"week", "", first, "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"},
		{"day", "Asia/Shanghai", 6, "2026-11-28T05:59:59+08:00", "2026-11-27T06:00:00+08:00",
			"2026-11-28T06:00:00+08:00"},
		// Daylight-saving time: a day of 23 hours, one of 25, and one that begins at 01:00.
		{"day", "America/New_York", first, "2026-03-08T12:00:00-04:00", "2026-03-08T00:00:00-05:00",
			"2026-03-09T00:00:00-04:00"},
		{"day", "America/New_York", first, "2026-11-01T12:00:00-05:00", "2026-11-01T00:00:00-04:00",
			"2026-11-02T00:00:00-05:00"},
		{"day", "Asia/Beirut", first, "2026-03-29T12:00:00+03:00", "2026-03-29T01:00:00+03:00",
			"2026-03-30T00:00:00+03:00"},
		{"day", "America/New_York", 2, "2026-03-08T12:00:00-04:00", "2026-03-08T03:00:00-04:00",
			"2026-03-09T02:00:00-04:00"},
	} {
		p, err := twotier.NewPeriod(c.unit, c.zone, c.anchor)
		must.Succeed(t, err)
		start, end := p.Around(unixMilli(t, c.at))
		if start != unixMilli(t, c.start) || end != unixMilli(t, c.after) {
			t.Errorf("%s of %s from %d around %s: %v to %v, want %s to %s", c.unit, c.zone,
				c.anchor, c.at, time.UnixMilli(start).UTC(), time.UnixMilli(end).UTC(), c.start,
				c.after)
		}
	}
}

// first is the default anchor.
const first = twotier.DefaultAnchor

func unixMilli(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	must.Succeed(t, err)
	return at.UnixMilli()
}

func TestInvalidPeriods(t *testing.T) {
	for _, c := range []struct {
		unit, zone string
		anchor     int
		want       string
	}{
		{"year", "", first, `"year" is not one of hour, day, week, month`},
		{"day", "Mars/Olympus", first, "Mars/Olympus"},
		{"day", "Local", first, "Local"},
		{"day", "Europe//Lisbon", first, "unknown time zone"},
		{"day", "../../etc/passwd", first, "unknown time zone"},
		{"month", "", 0, "want 1 to 31"},
		{"month", "", 32, "want 1 to 31"},
		{"week", "", 8, "want 1 to 7"},
		{"day", "", 24, "want 0 to 23"},
		{"week", "", -1, "want 1 to 7"},
		{"hour", "", 0, "leave it out"},
	} {
		_, err := twotier.NewPeriod(c.unit, c.zone, c.anchor)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %q from %d: %v, want %q", c.unit, c.zone, c.anchor, err, c.want)
		}
	}
}

// TestPeriodsHaveShortForms reads periods in several spellings. Equal ones are the same value.
func TestPeriodsHaveShortForms(t *testing.T) {
	for text, want := range map[string]string{
		"day": "day", "day.0": "day", "day@UTC": "day", "day.06@Etc/GMT-3": "day.6@Etc/GMT-3",
		"month.14@Europe/Lisbon": "month.14@Europe/Lisbon",
		"week.1@Asia/Shanghai":   "week@Asia/Shanghai",
		"hour@Asia/Kathmandu":    "hour@Asia/Kathmandu",
	} {
		p, err := twotier.ParsePeriod(text)
		if err != nil || p.String() != want {
			t.Errorf("%s: %v %v, want %s", text, p, err, want)
			continue
		}
		again, err := twotier.ParsePeriod(want)
		if err != nil || again != p {
			t.Errorf("%s and %s are two values: %v", text, want, err)
		}
		anchor := p.Anchor()
		if p.Unit() == twotier.Hour {
			anchor = twotier.DefaultAnchor
		}
		made, err := twotier.NewPeriod(p.Unit().String(), p.Zone(), anchor)
		if err != nil || made != p {
			t.Errorf("%s is made as %v: %v", text, made, err)
		}
	}
	for text, field := range map[string]string{"": "window", "1d": "window", "Day": "window",
		"day@": "zone", "day@" + " ": "zone", "day@Europe": "zone", "day@/etc/localtime": "zone",
		"day@localtime": "zone", "day@posixrules": "zone", "day@Europe/../Europe/Lisbon": "zone",
		"day.": "anchor", "day.-1": "anchor", "day.+1": "anchor", "month.300": "anchor",
		"hour.0": "anchor", "day.24@Europe/Lisbon": "anchor"} {
		_, err := twotier.ParsePeriod(text)
		if invalid, ok := errors.AsType[*twotier.InvalidError](err); !ok || invalid.Field != field {
			t.Errorf("%q: %v, want an error about %s", text, err, field)
		}
	}
}

// TestLongestPeriods compares them with what calendars allow: 25 hours where clocks are set back.
func TestLongestPeriods(t *testing.T) {
	const hour = int64(time.Hour / time.Millisecond)
	for text, want := range map[string]int64{
		"hour": hour, "day": 24 * hour, "week": 7 * 24 * hour, "month": 31 * 24 * hour,
		"day@Asia/Shanghai": 24 * hour, "day@Europe/Lisbon": 25 * hour,
		"day@Australia/Lord_Howe": 24*hour + hour/2, "month@Europe/Lisbon": 31*24*hour + hour,
		"hour@Europe/Lisbon": 2 * hour,
	} {
		p, err := twotier.ParsePeriod(text)
		if err != nil || p.Longest() != want {
			t.Errorf("%s: %v, %v", text, err, time.Duration(p.Longest())*time.Millisecond)
		}
	}
}

// TestEveryZoneHasPeriods makes periods in every zone of the built-in database.
func TestEveryZoneHasPeriods(t *testing.T) {
	files, err := zip.OpenReader("internal/zones/zoneinfo.zip")
	must.Succeed(t, err)
	defer files.Close()
	for _, f := range files.File {
		p, err := twotier.NewPeriod("day", f.Name, twotier.DefaultAnchor)
		if err != nil {
			if f.Name != "UTC" && !strings.HasPrefix(f.Name, "Etc/") {
				t.Errorf("%s: %v", f.Name, err)
			}
			continue
		}
		if h := p.Longest() / 3_600_000; h < 24 || h > 27 { // 27 in Casey
			t.Errorf("%s: the longest day has %d hours", f.Name, h)
		}
	}
}

// TestLimitsResolveTheirWindow covers both kinds of limit.
func TestLimitsResolveTheirWindow(t *testing.T) {
	at := unixMilli(t, "2026-07-14T09:30:00+01:00")
	p, err := twotier.ParsePeriod("day@Europe/Lisbon")
	must.Succeed(t, err)
	for _, l := range []twotier.Limit{{Window: 9*3_600_000 + 1_800_001}, {Period: p}} {
		if got := l.WindowAt(at); got != 9*3_600_000+1_800_001 {
			t.Errorf("%+v: %d ms", l, got)
		}
	}
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
		{Limits: []twotier.Limit{{Window: 1}, {Period: p}}}}}
	if op.MayBorrow() {
		t.Error("an acquire over a calendar window may borrow")
	}
	if op.Kind = twotier.Count; !op.MayBorrow() {
		t.Error("a count over a calendar window may not borrow")
	}
}

// TestLimitsInJSON encodes limits, as nodes do, and parses them again.
func TestLimitsInJSON(t *testing.T) {
	p, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
	must.Succeed(t, err)
	for _, l := range []twotier.Limit{{Window: 60_000, Max: 5}, {Period: p, Max: 9}} {
		text, err := json.Marshal(l)
		must.Succeed(t, err)
		var got twotier.Limit
		if err := json.Unmarshal(text, &got); err != nil || got != l {
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, l)
		}
	}
	var l twotier.Limit
	if err := json.Unmarshal([]byte(`{"Max":5,"Period":"day@Nowhere"}`), &l); err == nil {
		t.Errorf("accepted %+v", l)
	}
}

func BenchmarkPeriod(b *testing.B) {
	p, err := twotier.NewPeriod("month", "Europe/Lisbon", twotier.DefaultAnchor)
	must.Succeed(b, err)
	now := time.Now().UnixMilli()
	for b.Loop() {
		p.Around(now)
	}
}

func TestFormatDuration(t *testing.T) {
	tests := map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 24 * time.Hour: "24h",
		90 * time.Minute: "1h30m",
		90 * time.Second: "1m30s", 10 * time.Second: "10s", 10 * time.Minute: "10m",
		time.Hour + time.Second: "1h0m1s",
		200 * time.Millisecond:  "200ms",
	}
	for d, want := range tests {
		if got := twotier.FormatDuration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}
