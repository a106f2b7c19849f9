package twotier

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// PeriodUnit is the length of a [Period].
type PeriodUnit uint8

// The units of a period.
const (
	Hour PeriodUnit = iota
	Day
	Week
	Month
)

// periodUnits are the names of the units, in their order.
var periodUnits = [...]string{"hour", "day", "week", "month"}

// String returns "hour", "day", "week" or "month".
func (u PeriodUnit) String() string { return periodUnits[u] }

// Period is a calendar period that repeats: every hour, day, week or month of a time zone. It is
// safe for concurrent use, and shared by all limits that it applies to.
//
// Periods leave no gap. A day has 23 or 25 hours when daylight-saving time begins or ends, and an
// hour that clocks repeat then lasts for two.
type Period struct {
	unit   PeriodUnit
	zone   *time.Location
	anchor int
	latest atomic.Pointer[span] // the latest period that was asked for
}

// span is the time from one moment until before another one, in unix milliseconds.
type span struct{ start, end int64 }

// NewPeriod returns the period of a unit in a time zone of the IANA database; an empty name means
// UTC. The anchor is where the period begins: the day of a month from 1 to 31, which is the last day
// of a shorter month; the day of a week from 1 (Monday) to 7; the hour of a day from 0 to 23. An
// anchor of -1 stands for the first of them. An hour has no other anchor.
func NewPeriod(unit, zone string, anchor int) (*Period, error) {
	u := slices.Index(periodUnits[:], unit)
	if u < 0 {
		return nil, fmt.Errorf("%q is not one of %s", unit, strings.Join(periodUnits[:], ", "))
	}
	p := &Period{unit: PeriodUnit(u), anchor: anchor}
	// The zone "Local" would differ from node to node.
	at, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fmt.Errorf("unknown time zone %q, want a name such as Europe/Lisbon", zone)
	}
	p.zone = at
	least, most := p.unit.anchors()
	switch {
	case anchor == -1:
		p.anchor = least
	case anchor < least || anchor > most:
		return nil, fmt.Errorf("the anchor of a %v is %d, want %d to %d", p.unit, anchor, least, most)
	}
	return p, nil
}

// anchors returns the lowest and the highest anchor of a unit.
func (u PeriodUnit) anchors() (least, most int) {
	switch u {
	case Month:
		return 1, 31
	case Week:
		return 1, 7
	case Day:
		return 0, 23
	}
	return 0, 0
}

// ParsePeriod reads the short form: a unit, and after an @ its time zone, such as "day" and
// "month@Europe/Lisbon".
func ParsePeriod(text string) (*Period, error) {
	unit, zone, given := strings.Cut(text, "@")
	if given && zone == "" {
		return nil, fmt.Errorf("a time zone must follow the @, such as %s@Europe/Lisbon", unit)
	}
	return NewPeriod(unit, zone, -1)
}

// Unit returns the period's unit.
func (p *Period) Unit() PeriodUnit { return p.unit }

// Zone returns the name of the period's time zone.
func (p *Period) Zone() string { return p.zone.String() }

// Anchor returns where the period begins, see [NewPeriod].
func (p *Period) Anchor() int { return p.anchor }

// Longest returns the length of the longest of these periods, in milliseconds.
func (p *Period) Longest() int64 {
	const hour = int64(time.Hour / time.Millisecond)
	// A change of the clock, or of a zone's offset, adds up to a day: Samoa has skipped one.
	switch p.unit {
	case Month:
		return 32 * 24 * hour
	case Week:
		return 8 * 24 * hour
	case Day:
		return 2 * 24 * hour
	}
	return 2 * hour
}

// Around returns the period that contains a moment: its first millisecond, and the first one of the
// next period, in unix milliseconds.
func (p *Period) Around(ms int64) (start, end int64) {
	latest := p.latest.Load()
	if latest != nil && latest.start <= ms && ms < latest.end {
		return latest.start, latest.end
	}
	start, end = p.around(ms)
	if latest == nil || latest.start < start {
		p.latest.Store(&span{start, end})
	}
	return start, end
}

func (p *Period) around(ms int64) (start, end int64) {
	at := time.UnixMilli(ms).In(p.zone)
	start = p.begin(at, -1)
	// The local date shows which period it is, but clocks may have been set back across midnight.
	for i := 0; ; i++ {
		if end = p.begin(at, i); end > ms {
			return start, end
		}
		start = end
	}
}

// begin returns the start of the period that begins on the local date of a moment, or i periods
// later.
func (p *Period) begin(at time.Time, i int) int64 {
	year, month, day := at.Date()
	switch p.unit {
	case Month:
		first := time.Date(year, month+time.Month(i), 1, 0, 0, 0, 0, time.UTC)
		last := first.AddDate(0, 1, -1).Day()
		return p.reaches(first.Year(), first.Month(), min(p.anchor, last), 0)
	case Week:
		since := (int(at.Weekday()) - p.anchor + 7) % 7
		return p.reaches(year, month, day-since+7*i, 0)
	case Day:
		return p.reaches(year, month, day+i, p.anchor)
	}
	return p.reaches(year, month, day, at.Hour()+i)
}

// reaches returns the first moment at which clocks in the zone show a time or a later one. Clocks
// that are set forward may skip the time, and clocks that are set back show it twice.
func (p *Period) reaches(year int, month time.Month, day, hour int) int64 {
	want := time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
	at := time.Date(year, month, day, hour, 0, 0, 0, p.zone)
	from, to := at.ZoneBounds()
	_, offset := at.Zone()
	switch shown := at.Unix() + int64(offset); {
	case shown < want.Unix():
		return to.UnixMilli()
	case shown > want.Unix():
		return from.UnixMilli()
	case from.IsZero():
		return at.UnixMilli()
	}
	_, before := from.Add(-1).Zone()
	earlier := at.Add(time.Duration(offset-before) * time.Second)
	if before > offset && earlier.Before(from) {
		return earlier.UnixMilli()
	}
	return at.UnixMilli()
}
