package resp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/verdicts"
)

// TestHolds acquires with a hold and a bound on how many are open, renews and settles. The id comes
// last, behind the numbers of open holds.
func TestHolds(t *testing.T) {
	c, s, h := dialHolds(t, nil)
	h.Sealer.SetSecret(nil)
	c.expect([][2]string{{"TT.ACQUIRE a LIMIT 1h 5 HOLD 10s", "-TRYAGAIN"}})
	h.Sealer.SetSecret([]byte("secret"))
	id := idOf(t, c.do("TT.ACQUIRE a N 3 LIMIT 1h 5 CONCURRENT 1 HOLD 10m"), "[1 0 3 2 1 0 ")
	if got := c.do("TT.ACQUIRE a N 1 LIMIT 1h 5 CONCURRENT 1 HOLD 10m"); !strings.HasPrefix(got,
		"[0 ") || !strings.HasSuffix(got, " 3 2 1 0]") {
		t.Errorf("a second one is open: %s", got)
	}
	renewed := idOf(t, c.do("TT.RENEW "+id+" 20m"), "[")
	two := idOf(t, c.do("TT.ACQUIRE b N 2 LIMIT 1h 5 KEY c N 2 LIMIT 1h 2 HOLD 10m"),
		"[1 0 2 3 2 0 ")
	c.expect([][2]string{
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
	})
	late := idOf(t, c.do("TT.ACQUIRE d N 2 LIMIT 1h 9 HOLD 1m"), "[1 0 2 7 ")
	s.now.Add(120_000)
	c.expect([][2]string{{"TT.SETTLE " + late + " 5", "[2]"}, {"TT.SETTLE " + late + " 5", "[0]"}})
}

// dialHolds connects to a server with holds.
func dialHolds(t *testing.T, shadow twotier.Shadow) (*client, *banning, *ask.Holds) {
	s, rules := newBans(t)
	h := &ask.Holds{Now: s.now.Load, Tally: holds.Tally{Now: s.now.Load}}
	h.Sealer.SetSecret([]byte("secret"))
	return dial(t, serve(t, resp.Options{Service: s, Rules: rules, Holds: h, Shadow: shadow})), s, h
}

// TestReleaseOption: ONEXPIRY release makes a hold that is released at its end.
func TestReleaseOption(t *testing.T) {
	c, _, h := dialHolds(t, nil)
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
	c, _, _ := dialHolds(t, nil)
	const open = "TT.ACQUIRE a N 3 LIMIT 1h 5 CONCURRENT 1 HOLD 10m"
	first := idOf(t, c.do(open), "[1 0 3 2 1 0 ")
	c.expect([][2]string{{"TT.RELEASE " + first, "[1]"}})
	second := idOf(t, c.do(open), "[1 0 3 2 1 0 ") // as if there had been no other
	c.expect([][2]string{
		{"TT.RELEASE " + first, "[0]"}, {"TT.SETTLE " + first + " 9", "[0]"},
		{"TT.COUNT a 1h", "[3]"}, {"TT.SETTLE " + second + " 4", "[1]"},
		{"TT.RELEASE " + second, "[0]"}, {"TT.COUNT a 1h", "[4]"},
		{"TT.RELEASE none", "-ERR"}, {"TT.RELEASE AAAA" + first[4:], "-NOPERM"},
		{"TT.RELEASE", "-ERR wrong number of arguments for 'tt.release' command"},
		{"TT.RELEASE " + first + " 0", "-ERR wrong number of arguments"},
	})
}

// TestHoldsInShadow: a limit on open holds in shadow shows how many are open, and refuses nothing.
func TestHoldsInShadow(t *testing.T) {
	c, _, _ := dialHolds(t, twotier.Shadow{twotier.DefaultNamespace: true})
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

// TestCalendarWindows sends commands at 22:13:20 UTC on 14 November 2023, which is the 15th in
// Shanghai.
func TestCalendarWindows(t *testing.T) {
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s}))
	c.expect([][2]string{
		{"TT.ACQUIRE a TS 1699970000000 LIMIT day 9", "[1 0 1 8]"},
		{"TT.ACQUIRE a LIMIT day 2 LIMIT day@Asia/Shanghai 2", "[1 0 2 0 1 1]"},
		{"TT.ACQUIRE a LIMIT day 2 LIMIT 24h 9", "[0 6400000 2 0 2 7]"},
		{"TT.ACQUIRE a LIMIT day@Asia/Shanghai 2", "[1 0 2 0]"},
		{"TT.ACQUIRE a LIMIT day@Asia/Shanghai 2", "[0 64000000 2 0]"},
		{"TT.ACQUIRE a N 3 LIMIT hour 2", "[0 -1 2 0]"},
		{"TT.COUNT a day day.6@Asia/Shanghai hour", "[3 2 2]"},
		{"TT.COUNT a day BOUNDS", "[3 3 3]"},
	})
	c.expect([][2]string{
		{"TT.ACQUIRE a LIMIT month@Europe/Lisbon 5", "limits[0].window: month@Europe/Lisbon (up " +
			"to 745h) is longer than the namespace covers (25h); it needs `1h x 768` in namespace default"},
		{"TT.ACQUIRE a LIMIT 30d 5", "it needs `1h x 744` in namespace default"},
		{"TT.ACQUIRE a LIMIT day@Nowhere 5",
			"limits[0].window: zone: unknown time zone \"Nowhere\""},
		{"TT.ACQUIRE a LIMIT month.32 5", "limits[0].window: anchor: 32, want 1 to 31"},
		{"TT.COUNT a 1mo", "window: a month has no fixed length"},
		{"TT.COUNT a 24h", "[3]"}, // refused commands count nothing
	})
}

// TestHalfACommand checks that a connection that stops in the middle of a command ends, while an
// idle one stays.
func TestHalfACommand(t *testing.T) {
	server := serve(t, resp.Options{Service: newService(t),
		Limits: listener.Limits{ReadTimeout: 200 * time.Millisecond}})
	idle, half := dial(t, server), dial(t, server)
	half.expect([][2]string{{"PING", "PONG"}})
	half.send("*2\r\n$4\r\nECHO\r\n$3\r\nab")
	half.ended()
	idle.expect([][2]string{{"PING", "PONG"}})
}

// TestHalfACommandAgain stops in the middle of a command twice and completes the first: the time
// for the second starts anew.
func TestHalfACommandAgain(t *testing.T) {
	server := serve(t, resp.Options{Service: newService(t),
		Limits: listener.Limits{ReadTimeout: 300 * time.Millisecond}})
	const begin, rest = "*2\r\n$4\r\nECHO\r\n$3\r\nab", "c\r\n"
	for range 20 {
		c := dial(t, server)
		c.send(command("PING") + begin)
		c.expectReplies("PONG")
		c.send(rest)
		if got, err := c.next(); err != nil {
			continue // this machine took too long
		} else if got != "abc" {
			t.Fatal(got)
		}
		c.send(begin)
		c.ended()
		return
	}
	t.Error("no command was completed in time")
}

// TestVerdictsAreCounted counts single commands and a pipeline.
func TestVerdictsAreCounted(t *testing.T) {
	counters := verdicts.New()
	c := dial(t, serve(t, resp.Options{Service: newService(t), Verdicts: counters}))
	const acquire = "TT.ACQUIRE k NS sms LIMIT 1m 3"
	c.do(acquire)
	c.send(command(acquire) + command("TT.ADD k") + command(acquire) + command(acquire) +
		command(acquire) + command("TT.ACQUIRE k") + command("CL.THROTTLE k 0 1 60"))
	for range 7 {
		c.reply()
	}
	c.do("PING") // earlier commands are counted
	got := ""
	for _, r := range counters.Rows() {
		got += fmt.Sprintf("%v %s/%s %v\n", r.Door, r.Namespace, r.Rule, r.Totals)
	}
	if want := "resp default/ [0 1 0 0]\nresp sms/ [3 2 0 0]\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestHistoryOfVerdictsIsReadOnly refuses writes to the history, because only nodes count there.
func TestHistoryOfVerdictsIsReadOnly(t *testing.T) {
	c := dial(t, serve(t, resp.Options{Service: newService(t)}))
	for text, refused := range map[string]bool{
		"TT.COUNT sms/refused 1m NS @verdicts":            false,
		"TT.SERIES sms/refused 1m NS @verdicts":           false,
		"TT.ADD sms/refused NS @verdicts":                 true,
		"TT.ACQUIRE sms/refused NS @verdicts LIMIT 1m 1":  true,
		"TT.RESET sms/refused NS @verdicts":               true,
		"TT.COUNT sms/refused 1m NS @verdict":             true,
		"TT.ACQUIRE a LIMIT 1m 1 KEY b NS @ LIMIT 1m 100": true,
	} {
		if got := c.do(text); strings.HasPrefix(got, "-") != refused {
			t.Errorf("%s: %s", text, got)
		}
	}
}
