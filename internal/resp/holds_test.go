package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/resp"
)

// TestHolds acquires with a hold and a bound on how many are open, renews and settles. The id comes
// last, behind the numbers of open holds.
func TestHolds(t *testing.T) {
	s, rules := newBans(t)
	h := &ask.Holds{Now: s.now.Load, Tally: holds.Tally{Now: s.now.Load}}
	c := dial(t, serve(t, resp.Options{Service: s, Rules: rules, Holds: h}))
	if got := c.do("TT.ACQUIRE a LIMIT 1h 5 HOLD 10s"); !strings.HasPrefix(got, "-TRYAGAIN") {
		t.Errorf("without a secret: %s", got)
	}
	h.Sealer.SetSecret([]byte("secret"))
	id := idOf(t, c.do("TT.ACQUIRE a N 3 LIMIT 1h 5 CONCURRENT 1 HOLD 10m"), "[1 0 3 2 1 0 ")
	if got := c.do("TT.ACQUIRE a N 1 LIMIT 1h 5 CONCURRENT 1 HOLD 10m"); !strings.HasPrefix(got,
		"[0 ") || !strings.HasSuffix(got, " 3 2 1 0]") {
		t.Errorf("a second one is open: %s", got)
	}
	renewed := idOf(t, c.do("TT.RENEW "+id+" 20m"), "[")
	two := idOf(t, c.do("TT.ACQUIRE b N 2 LIMIT 1h 5 KEY c N 2 LIMIT 1h 2 HOLD 10m"),
		"[1 0 2 3 2 0 ")
	for _, step := range []struct{ command, want string }{
		{"TT.SETTLE " + id + " 7", "-ERR it was renewed"},
		{"TT.SETTLE " + renewed + " 7", "[1 limits[0]]"},
		{"TT.SETTLE " + renewed + " 7", "[0 limits[0]]"},
		{"TT.SETTLE " + two + " 3", "[1 checks[1].limits[0]]"}, {"TT.COUNT a 1h", "[7]"},
		{"TT.SETTLE none 7", "-ERR"}, {"TT.SETTLE " + renewed + " -7", "-ERR"},
		{"TT.SETTLE " + renewed + " x", "-ERR"}, {"TT.RENEW " + id + " x", "-ERR"},
		{"TT.SETTLE AAAA" + renewed[4:] + " 7", "-NOPERM"},
		{"TT.ACQUIRE a LIMIT 1h 5 CONCURRENT 1", "-ERR hold: missing"},
		{"TT.ACQUIRE a LIMIT 1h 5 HOLD 25h", "-ERR hold"},
		{"TT.ACQUIRE a LIMIT 1h 5 ONEXPIRY release", "-ERR on_expiry: want it only"},
		{"TT.ACQUIRE a LIMIT 1h 5 HOLD 1m ONEXPIRY drop", "-ERR on_expiry: want \"keep\" or"},
	} {
		if got := c.do(step.command); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %s, want %s", step.command, got, step.want)
		}
	}
	late := idOf(t, c.do("TT.ACQUIRE d N 2 LIMIT 1h 9 HOLD 1m"), "[1 0 2 7 ")
	s.now.Add(120_000)
	for _, want := range []string{"[2]", "[0]"} {
		if got := c.do("TT.SETTLE " + late + " 5"); got != want {
			t.Errorf("a late settlement: %s, want %s", got, want)
		}
	}
}

// TestReleaseOption: ONEXPIRY release makes a hold that is released at its end.
func TestReleaseOption(t *testing.T) {
	s, rules := newBans(t)
	h := &ask.Holds{Now: s.now.Load, Tally: holds.Tally{Now: s.now.Load}}
	h.Sealer.SetSecret([]byte("secret"))
	c := dial(t, serve(t, resp.Options{Service: s, Rules: rules, Holds: h}))
	for option, want := range map[string]bool{"": false, " ONEXPIRY keep": false,
		" ONEXPIRY Release": true} {
		id := idOf(t, c.do("TT.ACQUIRE a N 0 LIMIT 1h 9 HOLD 1m"+option), "[1 0 0 9 ")
		if made, err := h.Sealer.Open(id); err != nil || made.Release != want {
			t.Errorf("%q: %+v, %v", option, made, err)
		}
	}
}

// TestRelease ends holds: they count nothing, leave room for the next, and stay released.
func TestRelease(t *testing.T) {
	s, rules := newBans(t)
	h := &ask.Holds{Now: s.now.Load, Tally: holds.Tally{Now: s.now.Load}}
	h.Sealer.SetSecret([]byte("secret"))
	c := dial(t, serve(t, resp.Options{Service: s, Rules: rules, Holds: h}))
	const open = "TT.ACQUIRE a N 3 LIMIT 1h 5 CONCURRENT 1 HOLD 10m"
	first := idOf(t, c.do(open), "[1 0 3 2 1 0 ")
	if got := c.do("TT.RELEASE " + first); got != "[1]" {
		t.Errorf("the first release: %s", got)
	}
	second := idOf(t, c.do(open), "[1 0 3 2 1 0 ") // as if there had been no other
	for _, step := range []struct{ command, want string }{
		{"TT.RELEASE " + first, "[0]"}, {"TT.SETTLE " + first + " 9", "[0]"},
		{"TT.COUNT a 1h", "[3]"}, {"TT.SETTLE " + second + " 4", "[1]"},
		{"TT.RELEASE " + second, "[0]"}, {"TT.COUNT a 1h", "[4]"},
		{"TT.RELEASE none", "-ERR"}, {"TT.RELEASE AAAA" + first[4:], "-NOPERM"},
		{"TT.RELEASE", "-ERR wrong number of arguments for 'tt.release' command"},
		{"TT.RELEASE " + first + " 0", "-ERR wrong number of arguments"},
	} {
		if got := c.do(step.command); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %s, want %s", step.command, got, step.want)
		}
	}
}

// TestHoldsInShadow: a limit on open holds in shadow shows how many are open, and refuses nothing.
func TestHoldsInShadow(t *testing.T) {
	s, rules := newBans(t)
	h := &ask.Holds{Now: s.now.Load, Tally: holds.Tally{Now: s.now.Load}}
	h.Sealer.SetSecret([]byte("secret"))
	c := dial(t, serve(t, resp.Options{Service: s, Rules: rules, Holds: h,
		Shadow: twotier.Shadow{twotier.DefaultNamespace: true}}))
	for open := 1; open <= 3; open++ {
		idOf(t, c.do("TT.ACQUIRE a N 0 CONCURRENT 1 HOLD 10m"), fmt.Sprintf("[1 0 %d 0 ", open))
	}
}

// idOf returns the id in an answer that begins with a text.
func idOf(t *testing.T, answer, begin string) string {
	t.Helper()
	rest, ok := strings.CutPrefix(answer, begin)
	words := strings.Fields(strings.Trim(rest, "[]"))
	if !ok || len(words) == 0 {
		t.Fatalf("%s, want %s and an id", answer, begin)
	}
	return fmt.Sprint(words[0])
}
