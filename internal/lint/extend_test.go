package lint_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
)

// TestExtendedLaddersCoverEveryWindow draws ladders and windows in three namespaces, one of which
// has no ladder: extended ladders cover all windows, and only the namespaces that need it have
// another one.
func TestExtendedLaddersCoverEveryWindow(t *testing.T) {
	first := seed.First()
	random := rand.New(rand.NewPCG(first, 4))
	extended := 0
	for range 2000 {
		all := lint.Ladders{"default": randomLadder(random), "own": randomLadder(random)}
		text := "rules:\n"
		for i, name := range []string{"default", "own", "none", "own"} {
			text += fmt.Sprintf("- {name: r%d, namespace: %s, limits: 5/%dms}\n", i, name,
				1+random.Int64N(all.Of(name).Span()*3))
		}
		doc, err := rules.Read("f", []byte(text))
		must.Succeed(t, err)
		reachable := all.CheckWindows(doc) == nil
		fixed, changed := all.Extend(doc)
		if err := fixed.CheckWindows(doc); err != nil {
			t.Fatalf("seed %d: %v extended to %v:\n%s%v", first, all, fixed, text, err)
		}
		if reachable != (len(changed) == 0) {
			t.Fatalf("seed %d: %v: changed %v:\n%s", first, all, changed, text)
		}
		for _, name := range []string{"default", "own", "none"} {
			if _, is := all[name]; is && sameLadder(all[name], fixed[name]) {
				continue
			}
			if fixed[name] != nil {
				extended++
			}
		}
	}
	if extended < 1000 {
		t.Errorf("only %d ladders were extended", extended)
	}
}

// sameLadder reports whether two ladders have the same levels.
func sameLadder(a, b *leaparray.Ladder) bool { return a.String() == b.String() }

// TestWindowsThatNoLadderCoversStayMistakes has a window of twenty years next to one of 30 days.
func TestWindowsThatNoLadderCoversStayMistakes(t *testing.T) {
	doc, err := rules.Read("f", []byte("rules:\n- {name: a, limits: [5/30d, 9/7300d]}\n"))
	must.Succeed(t, err)
	fixed, changed := lint.Ladders{"default": leaparray.Default()}.Extend(doc)
	if got := fixed.CheckWindows(doc); fmt.Sprint(changed) != "[default]" || got == nil ||
		got.Error() != "f:2:29: a window of 175200h is longer than its namespace covers (744h)" {
		t.Errorf("changed %v, and then %v", changed, got)
	}
}
