package rules

import (
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/strictyaml"
)

// limitObject reads a limit such as {max: 1000, window: month, zone: Europe/Lisbon, anchor: 14}.
func (r *reader) limitObject(item *strictyaml.Node) (l twotier.RuleLimit) {
	has := strictyaml.Mapping{Name: "a limit", Example: "max: 15",
		Valid:  "a limit has max and window, and a calendar window also zone and anchor",
		Fields: strictyaml.Fields{"window": nil, "max": nil, "zone": nil, "anchor": nil},
	}.Read(r.Reader, item)
	window, most := has["window"], has["max"]
	if window == nil || most == nil {
		r.Fail(item, "limit: want max and window, such as {max: 15, window: 1m}")
		return l
	}
	text, ok := r.Text(window, "window")
	if !ok {
		return l
	}
	l, err := parseWindow(text)
	if err != nil {
		r.Fail(window, "limit: %v", err)
		return l
	}
	strictyaml.Number(&l.Max, 0, twotier.Unlimited-1)(r.Reader, "max", most)
	if zone, anchor := has["zone"], has["anchor"]; zone != nil || anchor != nil {
		r.setCalendar(&l, window, zone, anchor)
	}
	return l
}

// calendar reads the time zone in which the unit of a descriptor's limit is a calendar window.
func (r *reader) calendar(l *DescriptorLimit, n *strictyaml.Node) {
	zone, ok := r.Text(n, "calendar")
	if !ok {
		return
	}
	if l.Unlimited || l.Multiplier != 1 {
		r.Fail(n, "calendar: want it without unlimited and unit_multiplier")
		return
	}
	unit := strings.ToLower(l.Unit.String())
	period, err := twotier.NewPeriod(unit, zone, twotier.DefaultAnchor)
	if err != nil {
		r.Fail(n, "calendar: %v", err)
		return
	}
	l.Calendar = period
}

// setCalendar gives a limit the period that its window, zone and anchor spell. One of the last two
// may be nil.
func (r *reader) setCalendar(l *twotier.RuleLimit, window, zone, anchor *strictyaml.Node) {
	if l.Period == nil || l.Text != l.Period.Unit().String() {
		r.Fail(window, "window: with zone or anchor it is hour, day, week or month")
		return
	}
	name, day := "", twotier.DefaultAnchor
	if zone != nil {
		name, _ = r.Text(zone, "zone")
	}
	if anchor != nil {
		text, _ := r.Text(anchor, "anchor")
		n, err := strconv.Atoi(text)
		if err != nil {
			r.Fail(anchor, "anchor: %q is not a whole number", text)
			return
		}
		day = n
	}
	period, err := twotier.NewPeriod(l.Text, name, day)
	if err != nil {
		r.Fail(window, "limit: %v", err)
		return
	}
	l.Period, l.Text = period, period.String()
}
