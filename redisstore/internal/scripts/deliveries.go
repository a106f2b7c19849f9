package scripts

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// deliveries is a hook on the client of one server. It counts the reads that return data from any
// connection to the server, and records the attempts to send a pipeline. A server that does not
// answer a command in time but sends something meanwhile is late, not out of reach.
type deliveries struct {
	server    atomic.Int64
	all       *atomic.Int64 // of all servers of the store
	inCluster bool
}

// AddHooks observes the connections of a client of one server. It counts the reads that return data
// in delivered.
func AddHooks(client *redis.Client, delivered *atomic.Int64, inCluster bool) {
	client.AddHook(&deliveries{all: delivered, inCluster: inCluster})
}

// DialHook implements redis.Hook.
func (d *deliveries) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		watched := watchedConn{conn, d}
		if raw, ok := conn.(syscall.Conn); ok {
			return rawConn{watched, raw}, nil
		}
		return watched, nil
	}
}

// ProcessHook implements redis.Hook.
func (d *deliveries) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (d *deliveries) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		a, watched := ctx.Value(attemptsKey{}).(*attempts)
		if watched && d.inCluster {
			a.begin(cmds)
		}
		before := d.server.Load()
		err := next(ctx, cmds)
		if watched && err != nil {
			a.recordLate(cmds, d.server.Load() != before)
		}
		return err
	}
}

// watchedConn is a connection that counts its reads.
type watchedConn struct {
	net.Conn
	of *deliveries
}

func (c watchedConn) Read(b []byte) (n int, err error) {
	if n, err = c.Conn.Read(b); n > 0 {
		c.of.server.Add(1)
		c.of.all.Add(1)
	}
	return n, err
}

// rawConn is a watchedConn whose socket the driver may inspect, to find out whether an idle
// connection was closed. It does not inspect the socket below TLS.
type rawConn struct {
	watchedConn
	syscall.Conn
}
