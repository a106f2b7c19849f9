package events_test

import (
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/events"
)

// logged returns the texts of events about overload, oldest first.
func (b *bed) logged() (texts []string) {
	for _, e := range slices.Backward(b.Snapshot().Events) {
		if strings.HasPrefix(string(e.Kind), "overload") && e.Member == "a" {
			texts = append(texts, string(e.Kind)+": "+e.Text)
		}
	}
	return texts
}

// TestOverloadBeforeTheFirstLook records overload in the first state.
func TestOverloadBeforeTheFirstLook(t *testing.T) {
	l := newBed("a")
	l.RecordState(events.State{StoreUp: true,
		Refused: []events.Refused{{Why: "it is full", Total: 2}}})
	want := []string{"overload: a is overloaded: 2 refused, because it is full"}
	if got := l.logged(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOverload refuses many requests for two reasons, with pauses, and later makes some writes
// wait: there is one event when overload begins, and one after five seconds without a refusal.
func TestOverload(t *testing.T) {
	l := newBed("a")
	const full, late = "it is full", "it is late"
	var full0, late0 int64
	waiting := int64(0)
	look := func(after int64) {
		l.at += after
		l.RecordState(events.State{StoreUp: true, Waiting: waiting,
			Refused: []events.Refused{{Why: full, Total: full0}, {Why: late, Total: late0}}})
	}
	look(0)
	look(500)
	for range 100 {
		full0 += 20
		look(500)
		late0 += 4
		look(500)
		look(3900)
	}
	look(500)
	const begins = "overload: a is overloaded: 20 refused, because it is full"
	want := []string{begins}
	if got := l.logged(); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	look(600)
	look(60_000)
	want = append(want, "overload-over: a is not overloaded any more: "+
		"2000 refused, because it is full; 400 refused, because it is late")
	if got := l.logged(); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	waiting = 1
	look(500)
	waiting = 0
	look(500)
	look(-9000) // the clock is set: the length of the calm is unknown
	look(4999)
	want = append(want, "overload: a is overloaded: writes wait, because Redis is too far behind")
	if got := l.logged(); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	look(1)
	want = append(want, "overload-over: a is not overloaded any more: nothing was refused")
	if got := l.logged(); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}
