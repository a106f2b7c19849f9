package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are drawn from below the ephemeral range of Linux (32768) and macOS (49152), so that no
// outgoing connection can take the port of a server that is down and about to be restarted. Bus
// ports lie 10000 above, clear of both.
const (
	firstPort = 11000
	ports     = 10000
	busOffset = 10000
)

const loopback = "127.0.0.1"

// freePort returns a port that is free at the moment; with bus, its bus port is free too. Another
// process may take it before the server does, so the caller must be ready to try again.
func freePort(bus bool) (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		if isFree(port) && (!bus || isFree(port+busOffset)) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port in %d..%d", firstPort, firstPort+ports-1)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
