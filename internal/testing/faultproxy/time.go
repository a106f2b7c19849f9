package faultproxy

import (
	"bytes"
	"fmt"
	"time"
)

// ShiftTime has the server's clock appear to be set by that much: from now on the replies to TIME
// are changed, and nothing else is. The commands that the server runs itself, in scripts too, go by
// its own clock. It does nothing to a proxy that is raw.
func (p *Proxy) ShiftTime(by time.Duration) { p.shift.Store(int64(by)) }

// asksTime reports whether a request is TIME.
func asksTime(request []byte) bool {
	return bytes.EqualFold(request, []byte("*1\r\n$4\r\nTIME\r\n"))
}

// shifted returns the reply to TIME with another time in it. What is no such reply, such as an
// error, stays as it is.
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
