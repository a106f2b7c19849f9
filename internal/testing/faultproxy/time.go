package faultproxy

import (
	"bytes"
	"fmt"
	"time"
)

// ShiftTime makes the server's clock appear to be ahead by that much: from now on the proxy changes
// the replies to TIME, and nothing else. Commands that the server executes, also in scripts, still
// use its real clock. It has no effect on a raw proxy.
func (p *Proxy) ShiftTime(by time.Duration) { p.shift.Store(int64(by)) }

// asksTime reports whether a request is TIME.
func asksTime(request []byte) bool {
	return bytes.EqualFold(request, []byte("*1\r\n$4\r\nTIME\r\n"))
}

// shifted returns a reply to TIME with the time moved by that much. It leaves any other reply, such
// as an error, unchanged.
func shifted(reply []byte, by time.Duration) []byte {
	var sec, usec int64
	var n, m int
	if _, err := fmt.Sscanf(string(reply), "*2\r\n$%d\r\n%d\r\n$%d\r\n%d\r\n", &n, &sec, &m,
		&usec); err != nil || by == 0 {
		return reply
	}
	t := time.Unix(sec, usec*int64(time.Microsecond)).Add(by)
	s, u := fmt.Sprint(t.Unix()), fmt.Sprint(t.Nanosecond()/1000)
	return fmt.Appendf(nil, "*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(s), s, len(u), u)
}
