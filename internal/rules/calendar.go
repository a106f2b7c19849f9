package rules

import (
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/strictyaml"
)

// limitObject reads a limit such as {max: 1000, window: month, zone: Europe/Lisbon, anchor: 14}.
func (r *reader) limitObject(item *strictyaml.Node) (l twotier.RuleLimit) {
	var window, most, zone, anchor *strictyaml.Node
	strictyaml.Mapping{Name: "a limit", Example: "max: 15",
		Each: func(key string, at, to *strictyaml.Node) {
			switch key {
			case "window":
				window = to
			case "max":
				most = to
			case "zone":
				zone = to
			case "anchor":
				anchor = to
			default:
				r.Unknown(at, key, "a limit has max and window, and a calendar window also zone "+
					"and anchor")
			}
		}}.Read(r.Reader, item)
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
	l.Max = r.maximum(most)
	if zone != nil || anchor != nil {
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

// maximum reads the max of a limit.
func (r *reader) maximum(n *strictyaml.Node) int64 {
	text, ok := r.Text(n, "max")
	if !ok {
		return 0
	}
	most, err := strconv.ParseInt(text, 10, 64)
	if err != nil || most < 0 || most >= twotier.Unlimited {
		r.Fail(n, "max: %q is not a number from 0 to %d", text, int64(twotier.Unlimited)-1)
	}
	return most
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
