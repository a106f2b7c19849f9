//go:build !unix

package idle

import "net"

// Closed always reports false: this system does not reveal it without blocking.
func Closed(net.Conn) bool { return false }
