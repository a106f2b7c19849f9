package tap_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/seed"
)

// TestCallsWithoutReplies sends calls behind a command that blocks. A connection keeps the calls
// that fit into a bounded number of bytes, and drops the verdicts of others; all later ones are
// compared.
func TestCallsWithoutReplies(t *testing.T) {
	for name, c := range map[string]struct {
		padding, calls, most int
	}{
		"few": {0, 100, 100}, "many": {0, 20_000, 8_000}, "few long": {60_000, 30, 30},
		"many long": {60_000, 200, 34}, "transactions": {0, 20_000, 8_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			one := command("evalsha", sha, "1", "rl:ann", "1799999999000", "60000", "7", "1",
				strings.Repeat("x", c.padding))
			reply := ":1\r\n"
			if name == "transactions" {
				one = command("MULTI") + command("GET", "a") + one + command("EXEC")
				reply = "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$-1\r\n:1\r\n"
			}
			total := 0
			for range 2 { // the first ones leave no room taken
				h.pass(h.application, h.redis, command("BLPOP", "l", "0")+
					strings.Repeat(one, c.calls), 1<<20)
				if held := h.tap.Held(); held > 2<<20 || held == 0 {
					t.Errorf("%d bytes wait for replies, want at most 2 MiB", held)
				}
				h.pass(h.redis, h.application, "*-1\r\n"+strings.Repeat(reply, c.calls), 1<<20)
				if held := h.tap.Held(); held != 0 {
					t.Errorf("%d bytes wait for no reply", held)
				}
				until(t, func() bool { return h.mirror.Report().Waiting == 0 })
				h.exchange(one, reply, 1<<20)
				total += c.calls + 1
			}
			h.mirror.Close(t.Context())
			compared, dropped := len(h.asked.list), int(h.mirror.Report().Dropped)
			if compared+dropped != total || (dropped == 0) != (c.most == c.calls) ||
				compared < c.most/4 || compared > 2*(c.most+1) {
				t.Errorf("%d are compared and %d dropped of %d", compared, dropped, total)
			}
		})
	}
}

// TestEndReleasesCalls ends connections whose calls wait for replies.
func TestEndReleasesCalls(t *testing.T) {
	for _, last := range []string{"", "PING\r\n"} {
		h := start(t)
		h.pass(h.application, h.redis, evalsha("ann", "1")+command("MULTI")+evalsha("bob", "1")+
			last, 1<<20)
		h.application.Close()
		h.redis.Close()
		until(t, func() bool { return h.tap.Held() == 0 })
	}
}

// until waits until something holds.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute")
		}
	}
}

// TestRandomPipelines sends random commands, alone and in transactions, many before the first
// reply: the verdicts are those of a reader that waits for each reply.
func TestRandomPipelines(t *testing.T) {
	first := seed.First()
	for n := first; n < first+20; n++ {
		rng := rand.New(rand.NewPCG(n, 0))
		h := start(t)
		var want []string
		for range 5 {
			var requests, replies string
			for range rng.IntN(40) {
				ask, answer, verdicts := randomCommands(rng, len(want))
				requests, replies, want = requests+ask, replies+answer, append(want, verdicts...)
			}
			h.exchange(requests, replies, 1<<20)
		}
		h.mirror.Close(t.Context())
		slices.Sort(h.asked.list)
		slices.Sort(want)
		if !slices.Equal(h.asked.list, want) || h.tap.Held() != 0 {
			t.Errorf("TWOTIER_TEST_FIRST=%d: verdicts\n%q, want\n%q", n, h.asked.list, want)
		}
	}
}

// randomCommands returns commands with their replies, and the verdicts among them.
func randomCommands(rng *rand.Rand, id int) (requests, replies string, verdicts []string) {
	one := func() (reply string) {
		if rng.IntN(2) == 0 {
			requests += command("GET", "a")
			return "$-1\r\n"
		}
		key, allowed := fmt.Sprint("k", id, "-", len(requests)), rng.IntN(2)
		requests += evalsha(key, "1")
		verdicts = append(verdicts, fmt.Sprintf("%s 1 allowed=%t 7/1m0s 1799999999000", key,
			allowed == 1))
		return fmt.Sprintf(":%d\r\n", allowed)
	}
	if rng.IntN(2) == 0 {
		reply := one()
		return requests, reply, verdicts
	}
	requests, replies = command("MULTI"), "+OK\r\n"
	n, inside := rng.IntN(5), ""
	for range n {
		inside += one()
		replies += "+QUEUED\r\n"
	}
	switch rng.IntN(3) {
	case 0:
		return requests + command("DISCARD"), replies + "+OK\r\n", nil
	case 1:
		return requests + command("EXEC"), replies + "*-1\r\n", nil // a watched key has changed
	}
	return requests + command("EXEC"), replies + fmt.Sprintf("*%d\r\n", n) + inside, verdicts
}
