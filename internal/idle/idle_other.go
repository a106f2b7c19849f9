//go:build !unix

package idle

import "net"

// Closed always reports false: this system can't tell without blocking.
func Closed(net.Conn) bool { return false }
