package warning_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/warning"
)

// bed is a log with its clock and its output.
type bed struct {
	*warning.Log
	now    time.Time
	logged bytes.Buffer
}

func newBed() *bed {
	b := &bed{now: time.Unix(1_000_000, 0)}
	b.Log = warning.NewLog(slog.New(slog.NewTextHandler(&b.logged, nil)),
		func() time.Time { return b.now })
	return b
}

// lines returns how often a text was logged.
func (b *bed) lines(text string) int { return strings.Count(b.logged.String(), text) }

// TestWarningsAreLoggedOnce repeats warnings: each is logged when it is new, and a warning of a
// source disappears with its cause.
func TestWarningsAreLoggedOnce(t *testing.T) {
	b := newBed()
	old, kept := warning.Warning{Code: warning.NoEffect, At: "--old"},
		warning.Warning{Code: warning.NoEffect, At: "--kept"}
	b.Replace(warning.Settings, []warning.Warning{old, kept})
	b.Replace(warning.Settings, []warning.Warning{kept})
	b.Replace(warning.Rules, []warning.Warning{old})
	for range 3 {
		b.Observe(warning.ForwardedUntrusted, "127.0.0.1")
	}
	if b.lines("--kept") != 1 || b.lines("--old") != 2 || b.lines("at=127.0.0.1") != 1 {
		t.Errorf("logged:\n%s", b.logged.String())
	}
	list := b.List()
	if len(list) != 3 || list[0].Code != warning.ForwardedUntrusted || list[1] != old ||
		list[2] != kept {
		t.Errorf("listed: %v", list)
	}
	if of := b.Of(warning.Rules); len(of) != 1 || of[0] != old {
		t.Errorf("of rules: %v", of)
	}
}

// TestObservationsAreForgotten lets an hour pass after the last request.
func TestObservationsAreForgotten(t *testing.T) {
	b := newBed()
	b.Observe(warning.ForwardedMissing, "10.0.0.1")
	b.now = b.now.Add(50 * time.Minute)
	b.Observe(warning.ForwardedMissing, "10.0.0.1")
	b.now = b.now.Add(50 * time.Minute)
	if len(b.List()) != 1 {
		t.Errorf("forgotten after less than an hour: %v", b.List())
	}
	b.now = b.now.Add(11 * time.Minute)
	if len(b.List()) != 0 {
		t.Errorf("listed after more than an hour: %v", b.List())
	}
}

// TestObservationsAreBounded triggers warnings in more places than a log keeps, and in longer ones.
// An outdated place makes room.
func TestObservationsAreBounded(t *testing.T) {
	b := newBed()
	observe := func() {
		for i := range 10 * warning.MaxObserved {
			b.Observe(warning.UnknownDomain, fmt.Sprintf("%d-%s", i, strings.Repeat("é", 4096)))
		}
	}
	observe()
	list := b.List()
	if len(list) != warning.MaxObserved || b.lines("\n") != warning.MaxObserved {
		t.Errorf("%d listed, %d logged", len(list), b.lines("\n"))
	}
	for _, w := range list {
		if len(w.At) > 128 || !strings.HasSuffix(w.At, "é") {
			t.Errorf("%d bytes of a place: %q", len(w.At), w.At)
		}
	}
	b.Observe(warning.ForwardedMissing, "10.0.0.1")
	if len(b.List()) != warning.MaxObserved+1 {
		t.Error("one code takes the places of another")
	}
	b.now = b.now.Add(2 * time.Hour)
	b.Observe(warning.UnknownDomain, "new")
	if list := b.List(); len(list) != 1 || list[0].At != "new" {
		t.Errorf("no room for a new one: %v", list)
	}
}

// TestObservingAgainDoesNotAllocate repeats an observation, as requests do under a
// misconfiguration.
func TestObservingAgainDoesNotAllocate(t *testing.T) {
	b := newBed()
	if n := testing.AllocsPerRun(100, func() {
		b.Observe(warning.ForwardedUntrusted, "127.0.0.1")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestWarningsAreCounted reads the metric: a series for each code with warnings, and no others.
func TestWarningsAreCounted(t *testing.T) {
	b := newBed()
	b.Observe(warning.ForwardedMissing, "10.0.0.1")
	b.Observe(warning.ForwardedMissing, "10.0.0.2")
	b.Replace(warning.Rules, []warning.Warning{{Code: warning.CoarseWindow}})
	r := prometheus.NewRegistry()
	r.MustRegister(b.Log)
	families, err := r.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	got := map[string]float64{}
	for _, m := range families[0].Metric {
		got[m.Label[0].GetValue()] = m.Gauge.GetValue()
	}
	if len(got) != 2 || got["forwarded-missing"] != 2 || got["coarse-window"] != 1 {
		t.Errorf("%v", got)
	}
}

// TestObservedWarningsHaveText looks for a reason and a remedy for each code that requests can
// trigger.
func TestObservedWarningsHaveText(t *testing.T) {
	for _, code := range []warning.Code{warning.CoarseWindow, warning.SecretKey,
		warning.NoKeySource,
		warning.UnknownDomain, warning.OverrideShortened, warning.OverrideIgnored,
		warning.ForwardedUntrusted, warning.ForwardedMissing,
		warning.ForwardedMalformed} {
		if w := warning.Observed(code, "here"); w.Reason == "" || w.Instead == "" ||
			w.At != "here" {
			t.Errorf("%+v", w)
		}
	}
}
