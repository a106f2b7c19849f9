package imports

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Event is a number of events at a time in unix milliseconds.
type Event struct{ TS, N int64 }

// Units lists the units of time that a source may use.
func Units() []string { return []string{"auto", "s", "ms", "us", "ns"} }

// perSecond returns how many of a unit a second has.
func perSecond(unit string) float64 {
	switch unit {
	case "ms":
		return 1e3
	case "us":
		return 1e6
	case "ns":
		return 1e9
	}
	return 1
}

// The plausible times, in unix seconds: 2001 to 2100. Their ranges in different units don't
// overlap.
const (
	plausibleFrom = 1e9
	plausibleTo   = 4.2e9
)

// unitOf returns the unit in which a number is a plausible time, or "".
func unitOf(x float64) string {
	for _, unit := range Units()[1:] {
		if s := x / perSecond(unit); s >= plausibleFrom && s < plausibleTo {
			return unit
		}
	}
	return ""
}

// milliseconds returns a number in a unit, or in the unit in which it is plausible, as unix
// milliseconds.
func milliseconds(x float64, unit string) (int64, error) {
	if unit == "" || unit == "auto" {
		if unit = unitOf(x); unit == "" {
			return 0, fmt.Errorf("%s is no time in s, ms, us or ns", formatNumber(x))
		}
	}
	ms := x / perSecond(unit) * 1000
	if !(ms >= 1 && ms < math.MaxInt64/4) {
		return 0, fmt.Errorf("%s %s is no time after 1970", formatNumber(x), unit)
	}
	if unit == "s" || unit == "ms" {
		return int64(math.Round(ms)), nil
	}
	return int64(ms), nil
}

func formatNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// parseNumber parses a decimal number.
func parseNumber(text string) (float64, error) {
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%.40q is not a number", text)
	}
	return x, nil
}

// errIsTime is the error of a number that is a time. No limiter counts to 1e9.
var errIsTime = errors.New("is a time, not a number of events")

// parseCount parses a number of events.
func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	switch {
	case err != nil || n < 0:
		return 0, fmt.Errorf("%.40q is not a number of events", text)
	case unitOf(float64(n)) != "":
		return 0, fmt.Errorf("%d %w", n, errIsTime)
	}
	return n, nil
}

// merge sorts events by time and joins events of one millisecond. It changes the list.
func merge(events []Event) []Event {
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.TS, b.TS) })
	kept := events[:0]
	for _, e := range events {
		if last := len(kept) - 1; last >= 0 && kept[last].TS == e.TS {
			kept[last].N += e.N
		} else {
			kept = append(kept, e)
		}
	}
	return kept
}

// maxSpread is the largest number of times over which events are spread.
const maxSpread = 64

// spread returns n events at even distances between two times.
func spread(n, from, to int64) (events []Event) {
	times := min(n, maxSpread)
	for i := range times {
		events = append(events, Event{from + (2*i+1)*(to-from)/(2*times),
			n*(i+1)/times - n*i/times})
	}
	return merge(events)
}

func total(events []Event) (n int64) {
	for _, e := range events {
		n += e.N
	}
	return n
}
