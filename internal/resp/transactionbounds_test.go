package resp_test

import (
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/resp"
)

// TestTransactionBounds fills transactions with as many commands and bytes as they may have, and
// with more.
func TestTransactionBounds(t *testing.T) {
	const tooMuch = "-ERR a transaction has at most 512 commands and 65536 bytes; send several"
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s}))
	long := "TT.ADD " + strings.Repeat("k", 256)
	pad := func(n int) string { // a command of n bytes
		return encode("ECHO", strings.Repeat("x", n-len("*2\r\n$4\r\nECHO\r\n$00000\r\n\r\n")))
	}
	longs := 30_000 / len(command(long))
	rest := 65_536 - longs*len(command(long))
	for _, test := range []struct {
		name     string
		commands []string
		refused  bool
	}{
		{"512 commands", repeat(512, command("TT.ADD k")), false},
		{"513 commands", repeat(513, command("TT.ADD k")), true},
		{"64 KiB", append(repeat(longs, command(long)), pad(rest)), false},
		{"a byte more", append(repeat(longs, command(long)), pad(rest+1)), true},
	} {
		s.resets.Store(0)
		before := c.do("TT.TOP")
		c.do("MULTI")
		for i, text := range test.commands {
			c.send(text)
			want := "QUEUED"
			if test.refused && i == len(test.commands)-1 {
				want = tooMuch
			}
			if got := c.reply(); got != want {
				t.Fatalf("%s: command %d: got %.80s, want %s", test.name, i, got, want)
			}
		}
		got := c.do("EXEC")
		switch n := strings.Count(got, "OK"); {
		case test.refused && !strings.HasPrefix(got, "-EXECABORT"):
			t.Errorf("%s: %.80s", test.name, got)
		case test.refused && c.do("TT.TOP") != before:
			t.Errorf("%s: counted", test.name)
		case !test.refused && n != strings.Count(strings.Join(test.commands, ""), "TT.ADD"):
			t.Errorf("%s: %d were executed: %.80s", test.name, n, got)
		}
	}
}

func repeat(n int, text string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = text
	}
	return all
}

// TestTransactionMemory opens more long transactions than there is memory for. The next is refused,
// other commands are not, and each way to end a transaction returns its memory.
func TestTransactionMemory(t *testing.T) {
	s := newService(t)
	server := serve(t, resp.Options{Service: s, Limits: listener.Limits{MaxMemory: 4 << 20}})
	fill := command("ECHO " + strings.Repeat("x", 60_000))
	open := func() (*client, string) {
		c := dial(t, server)
		c.do("MULTI")
		c.send(fill)
		return c, c.reply()
	}
	for name, end := range map[string]func(c *client){
		"EXEC": func(c *client) {
			if got := c.do("EXEC"); len(got) != 60_002 {
				t.Errorf("EXEC: %.80s", got)
			}
		},
		"DISCARD": func(c *client) { c.do("DISCARD") },
		"RESET":   func(c *client) { c.do("RESET") },
		"an error": func(c *client) {
			c.do("NONSENSE")
			c.do("EXEC")
		},
		"QUIT":    func(c *client) { c.do("QUIT") },
		"the end": func(c *client) { c.Close() },
	} {
		var opened []*client
		for len(opened) < 100 {
			c, got := open()
			if got != "QUEUED" {
				if want := "-BUSY too much is being read and answered at this moment; nothing " +
					"was counted; retry_after_ms=1000"; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if got := c.do("EXEC"); !strings.HasPrefix(got, "-EXECABORT") {
					t.Errorf("EXEC after that: %s", got)
				}
				if got := c.do("TT.ADD k"); got != "OK" {
					t.Errorf("a plain command: %s", got)
				}
				break
			}
			opened = append(opened, c)
		}
		if n := len(opened); n < 1 || n > 4 {
			t.Errorf("%s: %d transactions of 60 kB in 256 KiB", name, n)
		}
		for _, c := range opened {
			end(c)
		}
		eventually(t, name, func() bool {
			return metricsOf(t, server)["twotier_resp_memory_bytes"] == 0
		})
	}
}

// TestNoMemoryForExec executes a long transaction while others use the memory for that.
func TestNoMemoryForExec(t *testing.T) {
	s := newService(t)
	s.hold = make(chan struct{})
	server := serve(t, resp.Options{Service: s, Limits: listener.Limits{MaxMemory: 4 << 20,
		RequestTimeout: time.Second}})
	waiting, c := dial(t, server), dial(t, server)
	waiting.do("MULTI")
	c.do("MULTI")
	for key, c := range map[string]*client{"held": waiting, "k": c} {
		c.send(command("TT.ADD "+key) + command("ECHO "+strings.Repeat("x", 60_000)))
		for range 2 {
			c.expectReplies("QUEUED")
		}
	}
	waiting.send(command("EXEC"))
	eventually(t, "the first EXEC", func() bool {
		return metricsOf(t, server)["twotier_resp_memory_bytes"] > 600_000
	})
	const want = "-EXECABORT Transaction discarded because of: BUSY too much is being read and " +
		"answered at this moment; nothing was counted; retry_after_ms=1000"
	if got := c.do("EXEC"); got != want {
		t.Errorf("got %.80s, want %s", got, want)
	}
	close(s.hold)
	waiting.reply()
	if got := c.do("TT.COUNT k 1m"); got != "[0]" {
		t.Errorf("counted %s", got)
	}
}

// TestPanicWithinTransaction has the service panic during EXEC: the memory is returned, and other
// connections stay.
func TestPanicWithinTransaction(t *testing.T) {
	s := newService(t)
	server := serve(t, resp.Options{Service: s})
	c, other := dial(t, server), dial(t, server)
	c.do("MULTI")
	c.do("TT.ADD k")
	s.panics.Store(true)
	c.send(command("EXEC"))
	c.ended()
	s.panics.Store(false)
	other.expect([][2]string{{"TT.ADD k", "OK"}, {"QUIT", "OK"}})
	eventually(t, "the end", func() bool {
		return metricsOf(t, server)["twotier_resp_memory_bytes"] == 0
	})
}
