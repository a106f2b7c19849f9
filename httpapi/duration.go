package httpapi

import (
	"math"
	"time"
)

// day is a unit that windows may use and time.ParseDuration lacks.
const day = 24 * time.Hour

// parseWindow parses a duration such as "90s", "1.5h" or "1d2h3m4s". It returns milliseconds, or
// says what is wrong. A window is a whole number of milliseconds, at least one.
func parseWindow(text []byte) (ms int64, wrong string) {
	const want = `want a duration such as "90s" or "1d2h3m4s"`
	if len(text) == 0 {
		return 0, want
	}
	total, rest := int64(0), text
	for len(rest) > 0 {
		var part int64
		var ok, fits bool
		part, rest, ok, fits = durationPart(rest)
		if !ok {
			return 0, want
		}
		if !fits || part > math.MaxInt64-total {
			return 0, "longer than 106751 days"
		}
		total += part
	}
	if total%int64(time.Millisecond) != 0 || total == 0 {
		return 0, "want a whole number of milliseconds, at least 1ms"
	}
	return total / int64(time.Millisecond), ""
}

// durationPart parses one number with its unit at the front of b and returns nanoseconds.
func durationPart(b []byte) (ns int64, rest []byte, ok, fits bool) {
	whole, i, fits := digits(b, 0)
	n := i
	frac, scale := int64(0), int64(1)
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && isDigit(b[i]); i++ {
			n++
			if scale < 1e15 { // further digits are less than a nanosecond of a day
				frac, scale = frac*10+int64(b[i]-'0'), scale*10
			} else if b[i] != '0' {
				return 0, nil, false, true
			}
		}
	}
	if n == 0 {
		return 0, nil, false, true
	}
	unit, width := durationUnit(b[i:])
	if width == 0 {
		return 0, nil, false, true
	}
	part := int64(float64(frac) * (float64(unit) / float64(scale)))
	if !fits || whole > (math.MaxInt64-part)/unit {
		return 0, nil, true, false
	}
	return whole*unit + part, b[i+width:], true, true
}

// digits parses the decimal number at b[i:] and returns the index after it. fits is false if the
// number overflows an int64.
func digits(b []byte, i int) (v int64, end int, fits bool) {
	fits = true
	for ; i < len(b) && isDigit(b[i]); i++ {
		d := int64(b[i] - '0')
		if v > (math.MaxInt64-d)/10 {
			fits = false
			continue
		}
		v = v*10 + d
	}
	return v, i, fits
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// durationUnit returns the unit at the front of b in nanoseconds, and the length of its name, which
// is 0 if there is no unit.
func durationUnit(b []byte) (ns int64, width int) {
	if len(b) >= 2 && b[1] == 's' {
		switch b[0] {
		case 'm':
			return int64(time.Millisecond), 2
		case 'u':
			return int64(time.Microsecond), 2
		case 'n':
			return 1, 2
		}
	}
	if len(b) == 0 {
		return 0, 0
	}
	switch b[0] {
	case 's':
		return int64(time.Second), 1
	case 'm':
		return int64(time.Minute), 1
	case 'h':
		return int64(time.Hour), 1
	case 'd':
		return int64(day), 1
	}
	return 0, 0
}
