package rules

import (
	"fmt"
	"slices"
	"strings"
)

// Unit is a unit of time in Envoy's API.
type Unit uint8

// The units of limits.
const (
	Second Unit = iota
	Minute
	Hour
	Day
	Week
	Month
	Year
)

// unitNames are the names of the units, in their order.
var unitNames = [...]string{"SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"}

// unitSeconds are the lengths of the units; a month has 30 days and a year 365, as in
// envoyproxy/ratelimit.
var unitSeconds = [...]int64{1, 60, 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400}

// String returns the name in Envoy's API, such as MINUTE.
func (u Unit) String() string { return unitNames[u] }

// Milliseconds returns the length of the unit.
func (u Unit) Milliseconds() int64 { return unitSeconds[u] * 1000 }

// ParseUnit reads the name of a unit in any case.
func ParseUnit(text string) (Unit, error) {
	i := slices.Index(unitNames[:], strings.ToUpper(text))
	if i < 0 {
		return 0, fmt.Errorf("%q is not one of second, minute, hour, day, week, month and year",
			text)
	}
	return Unit(i), nil
}
