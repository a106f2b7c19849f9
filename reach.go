package twotier

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"twotier.dev/twotier/leaparray"
)

// tooLong describes a limit without a window, or whose window a namespace does not cover, and the
// remedy.
func (l *Limit) tooLong(ladder *leaparray.Ladder, ns []byte) string {
	if IsValues(ns) {
		ns, _ = Accompanied(ns, nil)
	}
	if l.Longest() < 1 {
		return "neither a duration nor a calendar window that the owner of the key has; all " +
			"nodes need the same time zones"
	}
	name := FormatMillis(l.Window)
	if l.Period != nil {
		name = fmt.Sprintf("%v (up to %v)", l.Period, FormatMillis(l.Period.longest))
	}
	return fmt.Sprintf("%s is longer than the namespace covers (%v)%s", name,
		FormatMillis(ladder.Span()), ExtensionHint(ladder, string(ns), l.Longest()))
}

// ExtensionHint returns the end of an error about a window of so many milliseconds that the ladder
// of a namespace does not cover: the level to add. An empty namespace is the default one. The hint
// is empty if no ladder covers the window.
func ExtensionHint(ladder *leaparray.Ladder, ns string, window int64) string {
	level, ok := ladder.Extension(window)
	if !ok {
		return ""
	}
	return fmt.Sprintf("; it needs `%v` in namespace %s", level, cmp.Or(ns, DefaultNamespace))
}

// OutOfReach is the error for a window that ends at ts and begins before the ladder's span.
func OutOfReach(op *Op, l *leaparray.Ladder, window, ts, now int64) error {
	return &InvalidError{Check: -1, Limit: -1, Field: op.timeField(), Detail: fmt.Sprintf(
		"a window of %v that ends %v ago begins before what the namespace keeps (%v)",
		FormatMillis(window), FormatMillis(now-ts), FormatMillis(l.Span()))}
}

// FormatDuration formats a duration as Go does but without trailing zero units, such as 24h rather
// than 24h0m0s.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// FormatMillis formats milliseconds as [FormatDuration] does.
func FormatMillis(ms int64) string {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return fmt.Sprintf("%d ms", ms)
	}
	return FormatDuration(time.Duration(ms) * time.Millisecond)
}

// FormatWindow formats the window of a limit: its period, or its milliseconds if it has none.
func FormatWindow(ms int64, p *Period) string {
	if p != nil {
		return p.String()
	}
	return FormatMillis(ms)
}

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
