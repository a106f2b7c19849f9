//go:build unix

package idle

import (
	"net"
	"syscall"
)

// Closed reports whether a connection on which nothing is expected has been closed by the other
// side, or has got something all the same. What is sent on it would be lost, and nobody could tell
// whether it was carried out.
func Closed(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false // TLS has something to say now and then
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:]) // sockets of Go don't block
		quiet = err == syscall.EAGAIN
		return true
	})
	return err != nil || !quiet
}
