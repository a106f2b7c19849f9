package resp_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/resp"
)

// TestHalfACommand checks that a connection that stops in the middle of a command ends, while an
// idle one stays.
func TestHalfACommand(t *testing.T) {
	server := serve(t, resp.Options{Service: newService(t),
		Limits: listener.Limits{ReadTimeout: 200 * time.Millisecond}})
	idle, half := dial(t, server), dial(t, server)
	if got := half.do("PING"); got != "PONG" {
		t.Error(got)
	}
	half.send("*2\r\n$4\r\nECHO\r\n$3\r\nab")
	half.ended()
	if got := idle.do("PING"); got != "PONG" {
		t.Error(got)
	}
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
		if got := c.reply(); got != "PONG" {
			t.Fatal(got)
		}
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
