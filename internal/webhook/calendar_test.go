package webhook

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/testing/must"
)

// TestCalendarCrossings notifies once in each calendar period of a limit, and names the period.
func TestCalendarCrossings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(webhook)
		n := open(t, w, io.Discard)
		rule := &twotier.Rule{Name: "quota", Warn: 80}
		cross := func(window string) {
			period, err := twotier.ParsePeriod(window)
			must.Succeed(t, err)
			n.Record(&decisions.Decision{Key: []byte(window), Rule: rule,
				Limits: []twotier.LimitResult{{Period: period, Max: 15, Count: 12}}})
			synctest.Wait()
		}
		// The clock of the bubble begins at midnight in UTC.
		for range 24 {
			cross("day")
			time.Sleep(time.Hour)
		}
		if keys, _ := w.received(t); len(keys) != 1 {
			t.Errorf("within a day: %v", keys)
		}
		if want := `"window":"day"`; !strings.Contains(w.bodies[0], want) {
			t.Errorf("%s, want %s", w.bodies[0], want)
		}
		cross("day")
		cross("day.6")
		if keys, _ := w.received(t); len(keys) != 3 {
			t.Errorf("on the next day, and of another period: %v", keys)
		}
		must.Succeed(t, closeNow(n))
	})
}
