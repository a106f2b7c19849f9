package redisstore

import (
	"testing"

	"twotier.dev/twotier/leaparray"
)

// TestLevelsThroughAChange follows the levels of a namespace while processes with different ladders
// come and go.
func TestLevelsThroughAChange(t *testing.T) {
	const now = 1_763_000_000_000 // 4 s before since in what is expected
	for name, tt := range map[string]struct {
		before, ladder string
		shared         bool
		want           string
		lessens        bool
	}{
		"the same":                 {"1s x 60, 1m x 60", "1s x 60, 1m x 60", true, "1s x 60, 1m x 60", false},
		"a coarser level":          {"1s x 60", "1s x 60, 1m x 60", false, "1s x 60, 1m x 0/60", false},
		"a coarser level of all":   {"1s x 60, 1m x 0", "1s x 60, 1m x 60", true, "1s x 60, 1m x 0+60@1763000004000", false},
		"a finer level":            {"1s x 60", "100ms x 50, 1s x 60", false, "1s x 60, 100ms x 0/50", false},
		"more buckets":             {"1s x 60", "1s x 90", false, "1s x 60/90", false},
		"more buckets of all":      {"1s x 60", "1s x 90", true, "1s x 60+90@1763000004000", false},
		"that fill":                {"1s x 60+90@1762999999000", "1s x 90", true, "1s x 60+90@1762999999000", false},
		"fewer while they fill":    {"1s x 60+90@1762999999000", "1s x 70", false, "1s x 60/90", false},
		"fewer once they are full": {"1s x 60+90@1762999000000", "1s x 70", false, "1s x 70/90", true},
		"somebody keeps more":      {"1s x 60/90+80@1762999999000", "1s x 80", false, "1s x 60/90+80@1762999999000", false},
		"nobody keeps more":        {"1s x 60/90+80@1762999999000", "1s x 80", true, "1s x 60+80@1762999999000", false},
		"somebody has a level":     {"1s x 60, 1m x 60", "1s x 60", false, "1s x 60, 1m x 0/60", true},
		"more than fill":           {"1s x 60+90@1762999999000", "1s x 99", true, "1s x 60+99@1763000004000", false},
		"a level is gone":          {"1s x 60, 1m x 60", "1s x 60", true, "1s x 60, 1m x 0", true},
		"and comes back":           {"1s x 60, 1m x 0", "1s x 60, 1m x 50", true, "1s x 60, 1m x 0+50@1763000004000", false},
		"others":                   {"1s x 60", "2s x 60", true, "1s x 0, 2s x 0+60@1763000004000", true},
	} {
		before, err := parseLevels(tt.before)
		if err != nil || before.String() != tt.before {
			t.Fatalf("%s: %v, %v", name, before, err)
		}
		l, err := leaparray.ParseLadder(tt.ladder)
		if err != nil {
			t.Fatal(err)
		}
		after, lessens, err := before.joinedBy(l, now)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if tt.shared {
			after = after.sharedBy(l, now)
		}
		if after.String() != tt.want || lessens != tt.lessens {
			t.Errorf("%s: %v, lessens %v, want %s, %v", name, after, lessens, tt.want, tt.lessens)
		}
		if again, _, err := after.joinedBy(l, now); err != nil || again.String() != after.String() {
			t.Errorf("%s: it joins again: %v, %v", name, again, err)
		}
	}
}

// TestLevelsOfALadder checks what a ladder is told about levels that others changed.
func TestLevelsOfALadder(t *testing.T) {
	all, err := parseLevels("1s x 60, 15m x 96, 100ms x 0+50@1000000, 1m x 30+60@1000000, 1h x 0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := leaparray.ParseLadder("100ms x 50, 1s x 50, 1m x 60, 1h x 24")
	if err != nil {
		t.Fatal(err)
	}
	const filled = 1_000_000 + 5_000 // the level of 100 ms
	for now, reach := range map[int64][4]int64{
		filled - 1: {0, 50_000, 1_800_000, 86_400_000},
		filled:     {5_000, 50_000, 1_800_000, 86_400_000},
		4_600_000:  {5_000, 50_000, 3_600_000, 86_400_000},
	} {
		stored, ok := all.storedLevels(l, now)
		if !ok {
			t.Fatal("a level is missing")
		}
		l := l.StoredAs(func() *leaparray.StoredLevels { return &stored })
		for level, want := range reach {
			if got := l.Reach(level); got != want {
				t.Errorf("at %d level %d reaches %d ms, want %d", now, level, got, want)
			}
			if id := l.ID(level); l.LevelOf(id) != level || id != [4]uint8{2, 0, 3, 4}[level] {
				t.Errorf("level %d has the number %d", level, id)
			}
		}
		if l.LevelOf(1) != -1 || l.LevelOf(5) != -1 || l.Stored()[1].Count != 96 {
			t.Errorf("level 15m: %d, %v", l.LevelOf(1), l.Stored())
		}
	}
	if other, err := leaparray.ParseLadder("2s x 9"); err != nil {
		t.Fatal(err)
	} else if _, ok := all.storedLevels(other, 0); ok {
		t.Error("2s has no number")
	}
}

func TestLevelsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "1s", "1s x", "1s x -1", "1s x 1, 1s x 2", "x 1", "1s x 1+",
		"1s x 1/", "1s x 1/-2",
		"1s x 1+2", "1s x 1+2@", "10ms x 1", "1s x 1;", "1s x 1, 2s x 1, 3s x 1, 4s x 1, 5s x 1, " +
			"6s x 1, 7s x 1, 8s x 1, 9s x 1, 10s x 1, 11s x 1"} {
		if all, err := parseLevels(text); err == nil {
			t.Errorf("%q: %v", text, all)
		}
	}
	full, err := parseLevels("1s x 1, 2s x 1, 3s x 1, 4s x 1, 5s x 1, 6s x 1, 7s x 1, 8s x 1, " +
		"9s x 1, 10s x 1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := leaparray.ParseLadder("1s x 1, 11s x 1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := full.joinedBy(l, 0); err == nil {
		t.Error("there is room for no more widths")
	}
}
