//go:build unix

package idle

import (
	"net"
	"syscall"
)

// Closed reports whether the other side has closed an idle connection or has sent something
// unexpected on it. A request sent on such a connection would be lost, with an unknown outcome for
// the caller.
func Closed(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false // TLS sends additional messages
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:]) // Go's sockets are non-blocking
		quiet = err == syscall.EAGAIN
		return true
	})
	return err != nil || !quiet
}
