package request

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unicode/utf8"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/trace"
)

// The bounds of one request. Bounding its lists bounds its work.
const (
	// MaxOps bounds the operations of a batch.
	MaxOps = 10_000
	// MaxChecks bounds the checks of an acquire.
	MaxChecks = 64
	// MaxLimits bounds the limits of a check.
	MaxLimits = 16
	// MaxWindows bounds the windows of a count.
	MaxWindows = 64
	// MaxValues bounds the different values of a check, MaxValueBytes each of them, and
	// MaxValueLimits the limits on them, including those of rules.
	MaxValues, MaxValueBytes, MaxValueLimits = 1000, 1024, 64
	// MaxN is the largest number of events in one check.
	MaxN = 1<<31 - 1
	// MaxTop bounds a list of busiest keys.
	MaxTop = 1000
	// DefaultTop is the default length of such a list, and DefaultTopWindow its default window.
	DefaultTop       = 20
	DefaultTopWindow = "1m"
	// DefaultTopMS is DefaultTopWindow in milliseconds.
	DefaultTopMS = 60_000
	// MaxKeyBytes is the length of the longest key.
	MaxKeyBytes = 256

	maxNSBytes = 64
)

// The valid values of a refused field, for error messages.
const (
	WantN        = "want 1 to 2147483647"
	WantAcquireN = "want 0 to 2147483647"
	WantAddN     = "want 1 to 2147483647, or -1 to -2147483647 to take back"
	WantWindow   = `want a duration such as "90s" or "1d2h3m4s"`
	// WantLimitWindow is WantWindow for limits and counts, which accept calendar periods.
	WantLimitWindow = WantWindow + `, or a calendar window such as "day" or "month@Europe/Lisbon"`
	WantKey         = "want 1 to 256 bytes of UTF-8 without control characters"
	WantNS          = "want 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-'"
)

// ValidKey reports whether b may be a key.
func ValidKey(b []byte) bool {
	if len(b) == 0 || len(b) > MaxKeyBytes {
		return false
	}
	if isPrintable(b) {
		return bytes.IndexByte(b, 0x7f) < 0
	}
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r < 0x20 || (r >= 0x7f && r < 0xa0) || (r == utf8.RuneError && size == 1) {
			return false
		}
		i += size
	}
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// isPrintable reports whether all bytes are ASCII from the space up to DEL. It checks eight bytes
// at a time.
func isPrintable(b []byte) bool {
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		if (x|(x-ones*0x20))&highs != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c < 0x20 || c >= 0x80 {
			return false
		}
	}
	return true
}

// ValidNS reports whether b may be the name of a namespace.
func ValidNS(b []byte) bool {
	if len(b) == 0 || len(b) > maxNSBytes {
		return false
	}
	for _, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !IsDigit(c) && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// day and week are units that windows may use and time.ParseDuration lacks.
const (
	day  = 24 * time.Hour
	week = 7 * day
)

// wantNoMonths is the reason for refusing a number of months.
const wantNoMonths = `a month has no fixed length; want days such as "30d", or in a limit ` +
	`the calendar window "month"`

// wantNoPeriods is the reason for refusing a calendar window.
const wantNoPeriods = WantWindow + "; calendar windows are for limits and counts of events"

// wantDuration returns the reason why a text is no duration.
func wantDuration(text []byte) string {
	if text[0] >= 'a' {
		if _, wrong := parsePeriod(text); wrong == "" {
			return wantNoPeriods
		}
	} else if bytes.Contains(text, []byte("mo")) {
		return wantNoMonths
	}
	return WantWindow
}

// maxWindowText is the longest text of a window: leading zeros don't change its value.
const maxWindowText = 64

// ParseWindow parses a duration such as "90s", "1.5h", "2w" or "1d2h3m4s". It returns milliseconds,
// or the reason why the text is wrong, with the text. A window is a whole number of milliseconds,
// at least one.
func ParseWindow(text []byte) (ms int64, wrong string) {
	switch {
	case len(text) == 0:
		return 0, notWindow(text, WantWindow)
	case len(text) > maxWindowText: // answers repeat it
		return 0, notWindow(text, fmt.Sprintf("longer than %d characters", maxWindowText))
	}
	total, rest := int64(0), text
	for len(rest) > 0 {
		var part int64
		var ok, fits bool
		part, rest, ok, fits = parseDurationPart(rest)
		if !ok {
			return 0, notWindow(text, wantDuration(text))
		}
		if !fits || part > math.MaxInt64-total {
			return 0, notWindow(text, "longer than 106751 days")
		}
		total += part
	}
	if total%int64(time.Millisecond) != 0 || total == 0 {
		return 0, notWindow(text, "want a whole number of milliseconds, at least 1ms")
	}
	return total / int64(time.Millisecond), ""
}

// ParseLimitWindow parses the window of a limit: a duration, see [ParseWindow], or the short form
// of a calendar period, see [twotier.ParsePeriod]. It returns a limit without a maximum, or the
// reason why the text is wrong, with the text.
func ParseLimitWindow(text []byte) (l twotier.Limit, wrong string) {
	if len(text) > 0 && text[0] >= 'a' {
		return parsePeriod(text)
	}
	l.Window, wrong = ParseWindow(text)
	return l, wrong
}

// notWindow returns the reason why a text is no window, with the text.
func notWindow(text []byte, reason string) string { return reason + `, got "` + Clip(text) + `"` }

// parseDurationPart parses one number with its unit at the front of b and returns nanoseconds.
func parseDurationPart(b []byte) (ns int64, rest []byte, ok, fits bool) {
	whole, i, fits := ParseDigits(b, 0)
	n := i
	frac, scale := int64(0), int64(1)
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && IsDigit(b[i]); i++ {
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
	unit, width := parseDurationUnit(b[i:])
	if width == 0 {
		return 0, nil, false, true
	}
	part := int64(float64(frac) * (float64(unit) / float64(scale)))
	if !fits || whole > (math.MaxInt64-part)/unit {
		return 0, nil, true, false
	}
	return whole*unit + part, b[i+width:], true, true
}

// ParseNumber parses a text that is a decimal number of at most an int64.
func ParseNumber(text []byte) (v int64, ok bool) {
	v, end, fits := ParseDigits(text, 0)
	return v, fits && end > 0 && end == len(text)
}

// ParseDigits parses the decimal number at b[i:] and returns the index after it. fits is false if
// the number overflows an int64.
func ParseDigits(b []byte, i int) (v int64, end int, fits bool) {
	fits = true
	for ; i < len(b) && IsDigit(b[i]); i++ {
		d := int64(b[i] - '0')
		if v > (math.MaxInt64-d)/10 {
			fits = false
			continue
		}
		v = v*10 + d
	}
	return v, i, fits
}

// IsDigit reports whether c is a decimal digit.
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }

// parseDurationUnit returns the unit at the front of b in nanoseconds, and the length of its name,
// or 0 if there is no unit.
func parseDurationUnit(b []byte) (ns int64, width int) {
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
	case 'w':
		return int64(week), 1
	}
	return 0, 0
}

// parsePeriod parses the short form of a period.
func parsePeriod(text []byte) (l twotier.Limit, wrong string) {
	if len(text) > maxWindowText { // answers repeat it
		return l, notWindow(text, fmt.Sprintf("longer than %d characters", maxWindowText))
	}
	period, err := twotier.ParsePeriod(string(text))
	if err == nil {
		return twotier.Limit{Period: period}, ""
	}
	if invalid, ok := errors.AsType[*twotier.InvalidError](err); ok && invalid.Field != "window" {
		return l, notWindow(text, invalid.Field+": "+invalid.Detail)
	}
	return l, notWindow(text, WantLimitWindow)
}

// Context is a context with a deadline that costs nothing until a goroutine waits on it. Most
// operations are answered from memory and never wait; context.WithDeadline would allocate a context
// and arm a timer for each of them.
//
// The first call of Done makes a real context, to which everything is delegated from then on.
// Contexts derived from this one attach to it without a goroutine.
//
// For the same reason, the trace of a request is determined only on demand.
type Context struct {
	deadline time.Time

	mu     sync.Mutex
	inner  context.Context
	cancel context.CancelFunc
	source trace.Source // nil if there is none, or it has been asked
	traced *trace.Context
}

// Reset prepares c for the next request, whose trace, if it has one, source finds. It must not be
// called once Done has been.
func (c *Context) Reset(deadline time.Time, source trace.Source) {
	c.deadline, c.source, c.traced = deadline, source, nil
}

// Finish ends the request and reports whether c may be reused: it may not if its channel was
// requested and may still be in use. The source is not asked any more.
func (c *Context) Finish() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.source = nil
	if c.inner == nil {
		return true
	}
	c.cancel()
	return false
}

// Deadline returns when the request is given up.
func (c *Context) Deadline() (time.Time, bool) { return c.deadline, true }

// Done returns a channel that is closed at the deadline or when the request has been answered.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(context.Background(), c.deadline)
	}
	return c.inner.Done()
}

// Err returns the reason why the context is done, or nil if it is not.
func (c *Context) Err() error {
	if inner := c.made(); inner != nil {
		return inner.Err()
	}
	if !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value returns the trace of the request for [trace.Key], and otherwise values of the inner
// context. The context package uses it to recognise its own contexts.
func (c *Context) Value(key any) any {
	if key == (trace.Key{}) {
		return c.TraceContext()
	}
	if inner := c.made(); inner != nil {
		return inner.Value(key)
	}
	return nil
}

// TraceContext returns the trace of the request, or nil if it has none.
func (c *Context) TraceContext() *trace.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source != nil {
		c.traced, c.source = c.source.TraceContext(), nil
	}
	return c.traced
}

func (c *Context) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inner
}
