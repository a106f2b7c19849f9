package faulttest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// turnedAway opens connections from one address until at least least were turned away, and returns
// how many received that answer. They send nothing, so each of the others stays.
func turnedAway(t *testing.T, p *proctest.Process, least int) (n int64) {
	t.Helper()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	said := make(chan string)
	conns := make([]net.Conn, 0, 4*least)
	for range 2 * least {
		c, err := from.DialContext(t.Context(), "tcp", p.Listen)
		must.Succeed(t, err)
		conns = append(conns, c)
		go func() {
			text, _ := io.ReadAll(c) // it ends when the connection is closed here
			said <- string(text)
		}()
	}
	ended := 0
	for ; ended < least; ended++ {
		if strings.HasPrefix(<-said, "HTTP/1.1 429 ") {
			n++
		}
	}
	for _, c := range conns {
		c.Close()
	}
	for ; ended < len(conns); ended++ {
		if strings.HasPrefix(<-said, "HTTP/1.1 429 ") {
			n++
		}
	}
	return n
}

// TestOverloadIsAnEvent turns connections away, twice. Each time one event marks the beginning, and
// one the end, which together report the number of refusals and the reason.
func TestOverloadIsAnEvent(t *testing.T) {
	t.Parallel()
	const most = 8
	p := program.Serve(t, proctest.Options{}, "--max-connections", fmt.Sprint(4*most),
		"--max-connections-per-address", fmt.Sprint(most))
	var all int64
	for round := range 2 {
		all += turnedAway(t, p, most)
		proctest.Until(t, fmt.Sprintf("what was refused in round %d is in the events", round),
			func() bool {
				var seen cluster.Events
				must.Succeed(t, p.Ask("/v1/events", "", &seen))
				begun, over, refused := 0, 0, int64(0)
				for _, e := range seen.Events {
					var n int64
					switch e.Kind {
					case cluster.Overload:
						begun++
					case cluster.OverloadOver:
						over++
						if _, err := fmt.Sscanf(e.Text, e.Member+" is not overloaded any more: "+
							"%d refused, because there were too many connections", &n); err != nil {
							t.Fatalf("%v: %s", err, e.Text)
						}
						refused += n
					}
				}
				if begun > over+1 {
					t.Fatalf("%d times, over %d times: %+v", begun, over, seen)
				}
				// A connection that the test closed before it was turned away received no answer.
				return refused >= all && begun == over && over > round
			})
	}
}
