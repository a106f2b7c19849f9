package request_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/trace"
)

// source counts how often it is asked.
type source struct {
	asked int
	found *trace.Context
}

func (s *source) TraceContext() *trace.Context {
	s.asked++
	return s.found
}

// TestTraceIsLookedForWhenAskedFor asks several times, directly and through a derived context: the
// source is asked once, never by Err or Finish, and not after the end of the request.
func TestTraceIsLookedForWhenAskedFor(t *testing.T) {
	s := &source{found: &trace.Context{ID: [16]byte{1}, Span: [8]byte{2}}}
	var c request.Context
	c.Reset(time.Now().Add(time.Hour), s)
	if c.Err() != nil || s.asked != 0 {
		t.Fatalf("asked %d times", s.asked)
	}
	under, cancel := context.WithCancel(&c)
	defer cancel()
	for range 2 {
		if trace.From(under) != s.found || trace.From(&c) != s.found || s.asked != 1 {
			t.Fatalf("asked %d times", s.asked)
		}
	}
	if c.Finish() {
		t.Error("a context that somebody waits for is used again")
	}
	var other request.Context
	other.Reset(time.Now().Add(time.Hour), s)
	if !other.Finish() || trace.From(&other) != nil || s.asked != 1 {
		t.Errorf("asked %d times", s.asked)
	}
	other.Reset(time.Now().Add(time.Hour), nil)
	if trace.From(&other) != nil {
		t.Error("a trace from nowhere")
	}
}

// TestContextAllocatesNothing checks that a context nobody waits on allocates nothing.
func TestContextAllocatesNothing(t *testing.T) {
	s, c, by := new(source), new(request.Context), time.Now().Add(time.Hour)
	if n := testing.AllocsPerRun(100, func() {
		c.Reset(by, s)
		if c.Err() != nil || trace.From(c) != nil || !c.Finish() {
			t.Error("not a fresh context")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseWindow(t *testing.T) {
	good := map[string]int64{
		"1ms": 1, "90s": 90_000, "1m": 60_000, "37m": 2_220_000, "24h": 86_400_000,
		"1d": 86_400_000, "2w": 1_209_600_000, "1w2d3h": 788_400_000, "1.5h": 5_400_000,
		"1d2h3m4s": 93_784_000, "1000us": 1, "1000000ns": 1, "0.001s": 1, ".5s": 500, "5.s": 5000,
		"106751d": 9223286400000,
		"1s500ms": 1500, "0.1s": 100, "2.30s": 2300,
	}
	for text, want := range good {
		if got, wrong := request.ParseWindow([]byte(text)); got != want || wrong != "" {
			t.Errorf("%s: got %d %q, want %d", text, got, wrong, want)
		}
	}
	for _, text := range []string{"", "1", "s", "1x", "-1m", "+1m", "1m ", "w", "1mo", "day",
		".s", "1ns",
		"0.5ms", "99999999999999999999d", "106751d24h", "15251w", "1m\"", "0.0001s",
		strings.Repeat("0", 63) + "1m"} {
		if got, wrong := request.ParseWindow([]byte(text)); wrong == "" {
			t.Errorf("%q: accepted as %d", text, got)
		}
	}
}

func TestParseLimitWindow(t *testing.T) {
	for text, want := range map[string]string{"month": "month", "day.0": "day",
		"week.7@Asia/Shanghai": "week.7@Asia/Shanghai"} {
		l, wrong := request.ParseLimitWindow([]byte(text))
		if wrong != "" || l.Period == nil || l.Period.String() != want || l.Window != 0 {
			t.Errorf("%s: %+v %s", text, l, wrong)
		}
	}
	if l, wrong := request.ParseLimitWindow([]byte("2w")); l.Window != 1_209_600_000 ||
		l.Period != nil || wrong != "" {
		t.Errorf("2w: %+v %s", l, wrong)
	}
	for text, want := range map[string]string{
		"":                      `want a duration such as "90s"`,
		"days":                  `or a calendar window such as "day"`,
		"day@Nowhere":           `zone: unknown time zone "Nowhere"`,
		"month.32":              `anchor: 32, want 1 to 31 for a month, got "month.32"`,
		"1mo":                   `the calendar window "month"`,
		strings.Repeat("x", 65): "longer than 64 characters",
	} {
		if l, wrong := request.ParseLimitWindow([]byte(text)); !strings.Contains(wrong, want) {
			t.Errorf("%q: %+v %s, want %s", text, l, wrong, want)
		}
	}
}
