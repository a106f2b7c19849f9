package events_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/events"
)

// bed is a log with a clock that stands still.
type bed struct {
	*events.Log
	at int64
}

func newBed(node string) *bed {
	b := &bed{at: 1000}
	b.Log = events.New(node, func() int64 { return b.at })
	return b
}

// kinds returns the kinds and members of all events, oldest first.
func kinds(all cluster.Events) string {
	var list []string
	for _, e := range slices.Backward(all.Events) {
		text := string(e.Kind)
		if e.Member != "" {
			text += ":" + e.Member
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// member returns a live member.
func member(id string, started int64) cluster.Member {
	return cluster.Member{ID: id, Address: id + ":80", State: cluster.Alive, Started: started}
}

func TestMembersComeAndGo(t *testing.T) {
	l := newBed("a")
	a, b, c := member("a", 1), member("b", 2), member("c", 3)
	show := func(members ...cluster.Member) {
		l.at += 1000
		l.RecordState(events.State{Members: members, StoreUp: true})
	}
	show(a)
	show(a, b, c)
	b.State, c.State = cluster.Leaving, cluster.Suspect
	show(a, b, c)
	c.State = cluster.Alive
	show(a, b, c)
	c.State = cluster.Suspect
	show(a, b, c)
	show(a)
	const want = "started:a joined:b joined:c draining:b silent:c answering:c silent:c " +
		"left:b crashed:c"
	if got := kinds(l.Snapshot()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	gone := l.Snapshot().Departed
	if got := fmt.Sprint(gone); got != "[{c c:80 3 7000 crashed true} {b b:80 2 7000 left false}]" {
		t.Error(got)
	}
	show(a, member("c", 9)) // another process
	gone = l.Snapshot().Departed
	if len(gone) != 1 || gone[0].ID != "b" {
		t.Error(gone)
	}
	show(a, member("c", 10)) // it has restarted unnoticed
	const rest = " joined:c crashed:c joined:c"
	if got := kinds(l.Snapshot()); got != want+rest || len(l.Snapshot().Departed) != 1 {
		t.Error(got, l.Snapshot().Departed)
	}
}

// TestMembersAreMissing kills and stops members, and starts others: a member that crashed is
// missing until it is back, or replaced by a member with a new ID, or a day has passed.
func TestMembersAreMissing(t *testing.T) {
	hour := time.Hour.Milliseconds()
	for _, c := range []struct {
		name  string
		views string // members by letter, those that are leaving in upper case
		after int64
		want  string
	}{
		{"killed", "abc ab", 0, "c"},
		{"stopped", "abc abC ab", 0, ""},
		{"back", "abc ab abc", 0, ""},
		{"back, and killed again", "abc ab abc ab", 0, "c"},
		{"two, and one is back", "abc a ac", 0, "b"},
		{"replaced", "abc ab abd", 0, ""},
		{"two, and one replaced", "abc ab a ad", 0, "b"},
		{"more than before", "ab abc", 0, ""},
		{"almost a day", "abc ab", 23 * hour, "c"},
		{"a day", "abc ab", 24 * hour, ""},
	} {
		l := newBed("a")
		started := int64(10)
		alive := map[rune]cluster.Member{}
		for view := range strings.FieldsSeq(c.views) {
			var list []cluster.Member
			for _, id := range view {
				m, ok := alive[unicode.ToLower(id)]
				if !ok {
					started++
					m = member(string(unicode.ToLower(id)), started)
				}
				if unicode.IsUpper(id) {
					m.State = cluster.Leaving
				}
				list = append(list, m)
			}
			clear(alive)
			for _, m := range list {
				alive[rune(m.ID[0])] = m
			}
			l.at += 1000
			l.RecordState(events.State{Members: list, StoreUp: true})
		}
		l.at += c.after
		got := ""
		for _, d := range l.Snapshot().Departed {
			if d.Missing {
				got += d.ID
			}
		}
		if got != c.want {
			t.Errorf("%s: %q is missing, want %q", c.name, got, c.want)
		}
	}
}

func TestEverythingElseChanges(t *testing.T) {
	l := newBed("a")
	s := events.State{Mode: cluster.TwoTier, StoreUp: true, Rules: 3, Losses: 2}
	l.RecordState(s)
	for _, change := range []func(){
		func() { s.Mode = cluster.Redis },
		func() { s.Rules, s.RulesBy = 4, "admin" },
		func() { s.StoreUp, s.StoreError = false, "connection refused" },
		func() {},
		func() { s.StoreUp, s.Losses = true, 3 },
		func() { s.ClockDoubt = "it jumped" },
		func() { s.ClockDoubt = "" },
	} {
		change()
		l.RecordState(s)
	}
	const want = "started:a mode rules redis-lost redis-back redis-data-lost clock-doubted " +
		"clock-trusted"
	if got := kinds(l.Snapshot()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	all := l.Snapshot()
	text := fmt.Sprint(all.Events)
	for _, part := range []string{"the mode is redis in place of two-tier", "by admin",
		"connection refused", "it jumped"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %s", part, text)
		}
	}
}

// TestStoreIsDownAtFirst records that, although nobody has seen it up.
func TestStoreIsDownAtFirst(t *testing.T) {
	l := newBed("a")
	l.RecordState(events.State{StoreError: "refused"})
	if got := kinds(l.Snapshot()); got != "started:a redis-lost" {
		t.Error(got)
	}
}

// TestWhoWasThereBeforeHasNotJoined, unless it was away meanwhile.
func TestWhoWasThereBeforeHasNotJoined(t *testing.T) {
	l := newBed("b")
	a, b := member("a", 1), member("b", 2)
	for _, members := range [][]cluster.Member{{b}, {a, b}, {b}, {a, b}} {
		l.RecordState(events.State{Members: members, StoreUp: true})
	}
	if got := kinds(l.Snapshot()); got != "started:b crashed:a joined:a" {
		t.Error(got)
	}
}

func TestLogIsBounded(t *testing.T) {
	l := newBed("a")
	for i := range int64(2 * events.MaxEvents) {
		l.RecordState(events.State{StoreUp: true, Rules: i + 1,
			Members: []cluster.Member{member(fmt.Sprint("n", i), i)}})
	}
	all := l.Snapshot()
	if len(all.Events) != events.MaxEvents || len(all.Departed) != events.MaxDeparted {
		t.Errorf("%d events, %d departed", len(all.Events), len(all.Departed))
	}
	last := fmt.Sprint("n", 2*events.MaxEvents-2)
	if all.Departed[0].ID != last || all.Events[0].Kind != cluster.RulesChanged {
		t.Errorf("the newest are %+v and %+v", all.Events[0], all.Departed[0])
	}
}

// TestMergeJoinsWhatSeveralNodesSaw, but not two events of one node, or events long apart.
func TestMergeJoinsWhatSeveralNodesSaw(t *testing.T) {
	event := func(node string, at int64) cluster.Event {
		return cluster.Event{At: at, Kind: cluster.Crashed, Member: "c", Text: "c is gone",
			Nodes: []string{node}}
	}
	parts := []cluster.Events{
		{Events: []cluster.Event{event("b", 9000), event("b", 1500)},
			Departed: []cluster.Departed{{ID: "c", Started: 1, At: 9000, Why: cluster.Left},
				{ID: "d", At: 3000}}},
		{Events: []cluster.Event{event("a", 99_000), event("a", 1000)},
			Departed: []cluster.Departed{{ID: "c", Started: 1, At: 9900, Why: cluster.Crashed},
				{ID: "e", At: 100}}},
		{Departed: []cluster.Departed{{ID: "d", At: 3000, Missing: true}}},
	}
	all := events.Merge(parts, []string{"a", "e"})
	var got []string
	for _, e := range all.Events {
		got = append(got, fmt.Sprint(e.At, " ", e.Nodes))
	}
	if want := []string{"99000 [a]", "9000 [b]", "1000 [a b]"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if gone := all.Departed; len(gone) != 2 || gone[0].ID != "c" || gone[0].Why != cluster.Left ||
		gone[1].Missing {
		t.Errorf("departed: %+v", gone)
	}
	if parts[0].Events[1].Nodes[0] != "b" || len(parts[1].Events[1].Nodes) != 1 {
		t.Error("what was merged has changed")
	}
}
