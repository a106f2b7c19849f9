package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
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

// Reserve returns an address of this machine that no other test uses until tb ends.
func Reserve(tb testing.TB) (address string) {
	tb.Helper()
	port, held, err := reserve(false)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = held.Close() }) // which only unlocks it
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}

// reserve returns a port that is free at the moment, and that no other server of these tests, in
// any process, gets before held is closed: a server that is down finds it free when it comes back.
// With bus, its bus port is free too. A process outside of the tests may take it, so the caller
// must be ready to try again.
func reserve(bus bool) (port int, held *os.File, err error) {
	for range 1000 {
		port = firstPort + rand.IntN(ports)
		if held, err = hold(port); err != nil {
			return 0, nil, err
		}
		if held == nil {
			continue
		}
		if isFree(port) && (!bus || isFree(port+busOffset)) {
			return port, held, nil
		}
		if err := held.Close(); err != nil {
			return 0, nil, err
		}
	}
	return 0, nil, fmt.Errorf("no free port in %d..%d", firstPort, firstPort+ports-1)
}

// hold locks the file of a port. It returns nil if it is locked already. Locks end with the
// process.
func hold(port int) (*os.File, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprint("redistest-ports-", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil, file.Close()
	}
	return file, nil
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
