package lint_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/leaparray"
)

// TestCalendarWindowsThatImplyOthers: a calendar window begins anew where a sliding one goes on, so
// it implies only itself. A sliding window as long implies it.
func TestCalendarWindowsThatImplyOthers(t *testing.T) {
	for limits, want := range map[string]string{
		"[5/day, 9/day]": "2:33 never-refuses",
		"[5/24h, 9/day]": "2:33 never-refuses",
		"[{window: day, max: 5}, {window: day, max: 5}]": "2:49 never-refuses",
		"[5/24h, 9/day@Europe/Lisbon]":                   "", // it has 25 hours once a year
		"[5/day, 9/24h]":                                 "",
		"[5/day, 9/day@Asia/Shanghai]":                   "",
		"[5/day, 9/day.6]":                               "",
		"[9/day, 5/hour]":                                "",
	} {
		expect(t, "rules:\n- {name: quota, limits: "+limits+"}\n", want)
	}
}

func TestWindowsBeyondTheLadderNameTheLevel(t *testing.T) {
	for limits, want := range map[string]string{
		"[5/month@Europe/Lisbon]": "f:2:44: a window of 745h is longer than its namespace covers " +
			"(25h); it needs `1h x 768` in namespace usual",
		"[5/30d]":                        "it needs `1h x 744` in namespace usual",
		"[5/2w]":                         "it needs `1h x 360` in namespace usual",
		"[5/day@Europe/Lisbon, 5/1500m]": "",
	} {
		err := ladders(t).CheckWindows(read(t, "rules:\n- {name: quota, namespace: usual, "+
			"limits: "+limits+"}\n"))
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", limits, err, want)
		}
	}
}

// TestCoarseWindowsAreThoseThatTheCounterReadsCoarsely draws ladders, limits and windows, and
// compares with the widest bucket that can contain the beginning of the window, in a key whose
// events have all lost their millisecond and are as wide as their age allows.
func TestCoarseWindowsAreThoseThatTheCounterReadsCoarsely(t *testing.T) {
	first := seed.First()
	random := rand.New(rand.NewPCG(first, 1))
	for range 5000 {
		ladder := randomLadder(random)
		window := random.Int64N(ladder.Span()) + 1
		if levels := ladder.Levels(); random.IntN(2) == 0 { // as long as a level covers, or almost
			window = levels[random.IntN(len(levels))].Span().Milliseconds() + random.Int64N(4) - 1
			window = min(window, ladder.Span())
		}
		few := window < lint.FewBuckets*widest(ladder, random, window)
		all := lint.Ladders{"default": ladder}
		exact := int64(ladder.ExactEvents())
		if got := all.IsCoarse("other", exact+1, window); got != few {
			t.Fatalf("seed %d: %v: %d ms is coarse: %v, want %v", first, ladder, window, got, few)
		}
		if all.IsCoarse("other", exact, window) {
			t.Fatalf("seed %d: %v: %d in %d ms is coarse", first, ladder, exact, window)
		}
	}
}

// widest returns the width of the widest bucket in which the first millisecond of a window is
// counted. That bucket occurs at the edges of buckets, so it only tries those moments.
func widest(ladder *leaparray.Ladder, random *rand.Rand, window int64) (width int64) {
	for _, l := range ladder.Levels() {
		for range 40 {
			edge := l.Width.Milliseconds()
			begin := (1<<40/edge+random.Int64N(100))*edge - 1
			v := leaparray.View{Ladder: ladder, Now: begin + window - 1}
			if s, ok := ladder.Bucket(begin, v.Now); ok {
				v.Put(&v.A, leaparray.Heap{}, s, 1)
			}
			width = max(width, v.EdgeWidth(begin), v.EdgeWidth(begin+1))
		}
	}
	return width
}

// drawn is a random default rule: its limits, in seconds.
type drawn struct {
	name   string
	shadow bool
	limits [][2]int64 // the most, and the window
}

// TestWhatNeverRefusesCanBeRemoved draws default rules and events. A document without the limits
// and rules reported as never refusing makes the same decisions as the whole one.
func TestWhatNeverRefusesCanBeRemoved(t *testing.T) {
	first := seed.First()
	random := rand.New(rand.NewPCG(first, 2))
	removed := 0
	for range 2000 {
		all := make([]drawn, 1+random.IntN(3))
		for i := range all {
			all[i] = drawn{name: fmt.Sprintf("r%d", i), shadow: random.IntN(4) == 0}
			for range 1 + random.IntN(3) {
				all[i].limits = append(all[i].limits,
					[2]int64{random.Int64N(6), 10 + random.Int64N(30)})
			}
		}
		text, kept := document(all), slices.Clone(all)
		for _, w := range lint.Rules(read(t, text), ladders(t)) {
			if w.Code == warning.NeverRefuses {
				remove(kept, w.At)
				removed++
			}
		}
		if a, b := decisions(all, first), decisions(kept, first); a != b {
			t.Fatalf("seed %d:\n%sdecides %s, without what never refuses %s", first, text, a, b)
		}
	}
	if removed < 500 {
		t.Errorf("only %d limits and rules were removed", removed)
	}
}

// document writes rules, each on a line, and each limit at a column that remove knows.
func document(all []drawn) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for _, r := range all {
		state := "on"
		if r.shadow {
			state = "shadow"
		}
		fmt.Fprintf(&b, "- {name: %s, default: true, state: %-7s limits: [", r.name, state+",")
		for i, l := range r.limits {
			fmt.Fprintf(&b, "%s%d/%02ds", map[bool]string{true: ", "}[i > 0], l[0], l[1])
		}
		b.WriteString("]}\n")
	}
	return b.String()
}

// remove removes the part at a place of a document: a limit, or all limits of a rule.
func remove(all []drawn, at string) {
	var line, column int
	if _, err := fmt.Sscanf(at, "f:%d:%d", &line, &column); err != nil {
		panic(err)
	}
	const limits = len("- {name: r0, default: true, state: shadow, limits: [") + 1
	r := &all[line-2]
	if column < limits {
		r.limits = nil
		return
	}
	r.limits = slices.Clone(r.limits)
	r.limits[(column-limits)/len("1/10s, ")] = [2]int64{1 << 40, 1}
}

// decisions returns which events the active rules let pass, with exact counts.
func decisions(all []drawn, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 3))
	var counted []int64
	passes := func(now int64) bool {
		for _, r := range all {
			for _, l := range r.limits {
				n := int64(1)
				for _, at := range counted {
					if at > now-l[1] {
						n++
					}
				}
				if n > l[0] && !r.shadow {
					return false
				}
			}
		}
		return true
	}
	var b strings.Builder
	for now := int64(0); now < 200; now += random.Int64N(10) {
		if passes(now) {
			counted = append(counted, now)
			b.WriteByte('y')
		} else {
			b.WriteByte('n')
		}
	}
	return b.String()
}

func randomLadder(random *rand.Rand) *leaparray.Ladder {
	for {
		levels := make([]leaparray.Level, 1+random.IntN(3))
		width := time.Duration(1+random.IntN(100)) * 50 * time.Millisecond
		for i := range levels {
			levels[i] = leaparray.Level{Width: width, Count: 1 + random.IntN(100)}
			width *= time.Duration(2 + random.IntN(60))
		}
		if ladder, err := leaparray.NewLadder(random.IntN(100), levels...); err == nil {
			return ladder
		}
	}
}
