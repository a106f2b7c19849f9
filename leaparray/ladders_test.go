package leaparray_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// TestEarlyRefusals decides random streams by limits that are no larger than the number of exact
// events: it refuses nothing that a log of timestamps admits.
func TestEarlyRefusals(t *testing.T) {
	l := ladder(t, leaparray.DefaultExact, leaparray.DefaultLevels()...)
	var requests, refused int
	for _, limit := range []struct{ most, window int64 }{
		{10, 1000}, {5, 1500}, {20, 2000}, {3, 5000}, {60, 7000}, {10, 90_000}, {50, 600_000},
	} {
		rnd := rand.New(rand.NewPCG(uint64(limit.window), 1))
		k, at := key{l: l}, int64(1_700_000_000_000)
		var events log
		for range 300 {
			at += rnd.Int64N(limit.window * 2 / limit.most)
			k.now = at
			if events.within(limit.window, at) >= limit.most {
				continue
			}
			requests++
			if peak, ok := k.view().Peak(limit.window, at); !ok || peak >= limit.most {
				refused++
			}
			k.count(at, 1)
			events = append(events, event{at, 1})
		}
	}
	if refused > 0 || requests == 0 {
		t.Errorf("%d of %d that a log admits are refused", refused, requests)
	}
}

// TestBurstsAreExact counts up to 300 events at a time, many within a millisecond or within the
// finest bucket, as adds, charges or larger limits do. A limit that is small enough for the events
// that keep their millisecond refuses nothing that a log of timestamps admits, and the reverse.
func TestBurstsAreExact(t *testing.T) {
	l := ladder(t, leaparray.DefaultExact, leaparray.DefaultLevels()...)
	eachSeed(t, 50, func(t *testing.T, rnd *rand.Rand) {
		window := 200 + rnd.Int64N(int64(1000)<<rnd.IntN(12))
		most := 1 + rnd.Int64N(leaparray.DefaultExact)
		k, events := key{l: l, now: 1_700_000_000_000}, log{}
		for range 40 {
			k.now += rnd.Int64N(window)
			for range 1 + rnd.IntN(300) {
				k.now += rnd.Int64N(3) / 2
				e := event{k.now, 1 + rnd.Int64N(2)}
				if rnd.IntN(10) == 0 {
					e.at -= rnd.Int64N(300)
				}
				k.count(e.at, e.n)
				events = append(events, e)
			}
			for range 20 {
				k.shuffle(rnd)
				k.now += rnd.Int64N(window/8 + 1)
				peak, ok := k.view().Peak(window, k.now)
				if n := events.within(window, k.now); !ok || (peak < most) != (n < most) {
					t.Fatalf("%d/%dms: refused by %d; a log has %d", most, window, peak, n)
				}
			}
		}
	})
}

// TestDefaultLevelsLoseATenth counts a busy key by the default ladder, and asks for windows of any
// length from a second to a day: the bucket at a window's start is at most a tenth of the window.
func TestDefaultLevelsLoseATenth(t *testing.T) {
	l := ladder(t, leaparray.DefaultExact, leaparray.DefaultLevels()...)
	k := key{l: l, now: 1_700_000_000_000}
	rnd := rand.New(rand.NewPCG(1, 1))
	for k.now < 1_700_000_000_000+2*l.Span() {
		k.now += rnd.Int64N(2000)
		k.count(k.now, 10)
		if rnd.IntN(20) == 0 {
			k.fold(k.exactFrom())
		}
	}
	for range 20_000 {
		window := int64(1000 * (1 + rnd.ExpFloat64()*float64(10*int64(1)<<rnd.IntN(12))))
		if e, ok := k.view().Count(window, k.now, true); ok && e.Width*10 > window {
			t.Errorf("a window of %v has a bucket of %v at its edge",
				time.Duration(window)*ms, time.Duration(e.Width)*ms)
		}
	}
}

// TestExtensionsCoverTheWindow extends ladders as an error about a window proposes.
func TestExtensionsCoverTheWindow(t *testing.T) {
	const hour = time.Hour
	for _, test := range []struct {
		ladder string
		window time.Duration
		want   string
	}{
		{"", 30 * 24 * hour, "1h x 744"},
		{"", 745 * hour, "1h x 768"},
		{"", 26 * hour, "15m x 120"},
		{"", 400 * 24 * hour, "24h x 408"},
		{"1s x 60", 10 * time.Minute, "1s x 624"},
		{"1s x 60, 1m x 60, 15m x 96", 25 * hour, "15m x 120"},
		{"100ms x 10, 7m x 60", 30 * 24 * hour, "56m x 792"},
		{"100ms x 10, 1s x 10, 2s x 10, 4s x 10, 8s x 10, 24h x 10", 20 * 24 * hour, "24h x 24"},
		{"", 20 * 366 * 24 * hour, ""},
	} {
		levels := leaparray.DefaultLevels()
		if test.ladder != "" {
			levels = levelsOf(t, test.ladder)
		}
		l := ladder(t, 5, levels...)
		level, ok := l.Extension(test.window.Milliseconds())
		if ok != (test.want != "") || ok && level.String() != test.want {
			t.Errorf("%v for %v: %v, want %s", l, test.window, level, test.want)
			continue
		}
		if last := len(levels) - 1; ok && (levels[last].Width == level.Width ||
			len(levels) == leaparray.MaxLevels) {
			levels = levels[:last]
		}
		if ok && ladder(t, 5, append(levels, level)...).Span() < test.window.Milliseconds() {
			t.Errorf("%v does not cover %v", level, test.window)
		}
	}
}

// levelsOf reads levels such as "1s x 60, 15m x 96".
func levelsOf(t *testing.T, text string) (levels []leaparray.Level) {
	t.Helper()
	for part := range strings.SplitSeq(text, ", ") {
		var width string
		var l leaparray.Level
		_, err := fmt.Sscanf(part, "%s x %d", &width, &l.Count)
		if err == nil {
			l.Width, err = time.ParseDuration(width)
		}
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		levels = append(levels, l)
	}
	return levels
}
