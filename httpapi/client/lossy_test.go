package client_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// lossy makes connections that lose answers while losing is set: each with this probability, and
// one in five of them silently.
type lossy struct {
	probability float64
	losing      atomic.Bool
	lost        atomic.Int64
}

// dial is for client.Options.
func (l *lossy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, address)
	return &lossyConn{nc, l}, err
}

// lossyConn is a connection with one request in flight at a time, so that each Read belongs to one
// answer.
type lossyConn struct {
	net.Conn
	lossy *lossy
}

// Read drops an answer that has arrived: the server has executed the request. Then it hangs up, or
// goes on waiting.
func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil || !c.lossy.losing.Load() || rand.Float64() >= c.lossy.probability {
		return n, err
	}
	c.lossy.lost.Add(1)
	if rand.IntN(5) > 0 {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	for err == nil {
		_, err = c.Conn.Read(b)
	}
	return 0, err
}
