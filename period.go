package twotier

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/zones"
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

// DefaultAnchor stands for the first anchor of a unit: midnight, Monday, or the first day of a
// month.
const DefaultAnchor = math.MinInt

// Period is a calendar period that repeats: every hour, day, week or month of a time zone. It is
// safe for concurrent use. There is only one value for each period, so that pointers to equal
// periods are equal.
//
// Periods leave no gap. A day has 23 or 25 hours when daylight-saving time begins or ends, and an
// hour that clocks repeat then lasts for two.
type Period struct {
	unit    PeriodUnit
	zone    *time.Location
	anchor  int
	text    string
	longest int64
	latest  atomic.Pointer[span] // the latest period that was asked for
}

// span is the time from one moment until before another one, in unix milliseconds.
type span struct{ start, end int64 }

// NewPeriod returns the period of a unit in a time zone of the IANA database; an empty name means
// UTC. The anchor is where the period begins: the day of a month from 1 to 31, which is the last
// day of a shorter month; the day of a week from 1 (Monday) to 7; the hour of a day from 0 to 23.
// An hour has no anchor. The error is an *InvalidError whose field is "window", "zone" or "anchor".
func NewPeriod(unit, zone string, anchor int) (*Period, error) {
	u := slices.Index(periodUnits[:], unit)
	if u < 0 {
		return nil, periodError("window", "%q is not one of %s", unit,
			strings.Join(periodUnits[:], ", "))
	}
	p := &Period{unit: PeriodUnit(u), anchor: anchor}
	least, most := p.unit.anchors()
	switch {
	case anchor == DefaultAnchor:
		p.anchor = least
	case p.unit == Hour:
		return nil, periodError("anchor", "an hour has none; leave it out")
	case anchor < least || anchor > most:
		return nil, periodError("anchor", "%d, want %d to %d for a %v", anchor, least, most,
			p.unit)
	}
	if zone == utc {
		zone = ""
	}
	p.text = p.spell(zone)
	if known := interned.period(p.text); known != nil {
		return known, nil
	}
	at, err := interned.zone(zone)
	if err != nil {
		return nil, err
	}
	p.zone = at
	p.longest = p.measure()
	return interned.add(p), nil
}

// utc is the name of the time zone of periods that name none.
const utc = "UTC"

// spell returns the short form of the period in a zone.
func (p *Period) spell(zone string) string {
	text := p.unit.String()
	if least, _ := p.unit.anchors(); p.anchor != least {
		text += "." + strconv.Itoa(p.anchor)
	}
	if zone != "" {
		text += "@" + zone
	}
	return text
}

func periodError(field, format string, args ...any) error {
	return &InvalidError{Check: -1, Limit: -1, Field: field, Detail: fmt.Sprintf(format, args...)}
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

// ParsePeriod reads the short form of a period: a unit, its anchor after a dot, and its time zone
// after an @, such as "day", "month@Europe/Lisbon" and "month.14@Europe/Lisbon". The error is an
// *InvalidError, as of [NewPeriod].
func ParsePeriod(text string) (*Period, error) {
	if known := interned.period(text); known != nil {
		return known, nil
	}
	name, zone, given := strings.Cut(text, "@")
	if given && zone == "" {
		return nil, periodError("zone", "missing after the @; want a name such as Europe/Lisbon")
	}
	unit, digits, given := strings.Cut(name, ".")
	anchor := DefaultAnchor
	if given {
		n, err := strconv.ParseUint(digits, 10, 8)
		if err != nil {
			return nil, periodError("anchor", "%q is not a number", digits)
		}
		anchor = int(n)
	}
	return NewPeriod(unit, zone, anchor)
}

// Unit returns the period's unit.
func (p *Period) Unit() PeriodUnit { return p.unit }

// Zone returns the name of the period's time zone.
func (p *Period) Zone() string { return p.zone.String() }

// Anchor returns where the period begins, see [NewPeriod].
func (p *Period) Anchor() int { return p.anchor }

// String returns the short form of the period, see [ParsePeriod]. It leaves out the anchor if it is
// the first one, and the zone UTC.
func (p *Period) String() string { return p.text }

// Longest returns the length of the longest of these periods, in milliseconds.
func (p *Period) Longest() int64 { return p.longest }

// measure returns the length of the longest of these periods, in milliseconds. Clocks that are set
// back make a period longer; the rules for that are known for the coming years.
func (p *Period) measure() int64 {
	const hour = int64(time.Hour / time.Millisecond)
	longest := [...]int64{hour, 24 * hour, 7 * 24 * hour, 31 * 24 * hour}[p.unit]
	at, end := time.Unix(yearFrom, 0), time.Unix(yearTo, 0)
	for {
		_, next := at.In(p.zone).ZoneBounds()
		if next.IsZero() || next.After(end) {
			return longest
		}
		if !next.After(at) { // package time does so on the last day of a leap year
			next = at.Add(24 * time.Hour)
		}
		at = next
		for _, ms := range [...]int64{at.UnixMilli() - 1, at.UnixMilli()} {
			start, end := p.around(ms)
			longest = max(longest, end-start)
		}
	}
}

// The years 2020 to 2040, in which measure looks for changes of clocks, in unix seconds.
const (
	yearFrom = 1_577_836_800
	yearTo   = 2_208_988_800
)

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

// elapsed returns the length of the part of the period around a moment that ends with the moment,
// in milliseconds.
func (p *Period) elapsed(ms int64) int64 {
	start, _ := p.Around(ms)
	return ms - start + 1
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

// periodTable holds the periods and time zones in use. Only valid ones are kept, and their names
// are bounded: the database has some hundred zones, and each has 63 periods.
type periodTable struct {
	mu      sync.RWMutex
	periods map[string]*Period // by their short form
	zones   map[string]*time.Location
}

// interned makes equal periods the same value, so that limits can be compared. It also spares each
// request the time to read a zone from the database.
var interned = periodTable{periods: map[string]*Period{}, zones: map[string]*time.Location{}}

// period returns the period of that short form if it is in use, or nil.
func (t *periodTable) period(text string) *Period {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.periods[text]
}

// add adds a period, and returns it or an equal one that was added before.
func (t *periodTable) add(p *Period) *Period {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.periods[p.text]; known != nil {
		return known
	}
	t.periods[p.text] = p
	return p
}

func (t *periodTable) zone(name string) (*time.Location, error) {
	t.mu.RLock()
	known := t.zones[name]
	t.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	if !isZoneName(name) {
		return nil, unknownZone(name)
	}
	at, err := zones.Load(name)
	if err != nil {
		return nil, unknownZone(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.zones[name] = at
	return at, nil
}

func unknownZone(name string) error {
	return periodError("zone", "unknown time zone %.64q, want a name such as Europe/Lisbon", name)
}

// isZoneName reports whether a name may be one of the database: these begin with a capital letter.
// Other files next to the database depend on the machine, and so do the zone Local and names that
// only a file system finds: with more slashes, each zone would have any number of them.
func isZoneName(name string) bool {
	if len(name) > maxZoneName || name == "Local" || strings.Contains(name, "//") {
		return false
	}
	for i, c := range []byte(name) {
		capital := 'A' <= c && c <= 'Z'
		other := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '/' || c == '_' || c == '-' ||
			c == '+'
		if !capital && (i == 0 || !other) {
			return false
		}
	}
	return true
}

// maxZoneName bounds the names of time zones, in bytes.
const maxZoneName = 48

// limitJSON is a limit in a message between nodes.
type limitJSON struct {
	Window int64
	Max    int64
	Period string `json:",omitempty"`
}

// MarshalJSON implements [json.Marshaler]. A period has its short form.
func (l Limit) MarshalJSON() ([]byte, error) {
	m := limitJSON{Window: l.Window, Max: l.Max}
	if l.Period != nil {
		m.Period = l.Period.String()
	}
	return json.Marshal(m)
}

// UnmarshalJSON implements [json.Unmarshaler]. An unknown period is an error.
func (l *Limit) UnmarshalJSON(text []byte) (err error) {
	var m limitJSON
	if err = json.Unmarshal(text, &m); err != nil {
		return err
	}
	*l = Limit{Window: m.Window, Max: m.Max}
	if m.Period != "" {
		l.Period, err = ParsePeriod(m.Period)
	}
	return err
}
