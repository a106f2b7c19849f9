package scripts

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// deliveries is a hook on the client of one server. It counts the reads that return data from any
// connection to the server. A server that does not answer a command in time but sends something
// meanwhile is late, not out of reach.
type deliveries struct {
	server atomic.Int64
	all    *atomic.Int64 // of all servers of the store
}

// AddHooks observes the connections of a client of one server. It counts the reads that return data
// in delivered. Of a cluster's node it also records the attempts to send a pipeline.
func AddHooks(client *redis.Client, delivered *atomic.Int64, inCluster bool) {
	client.AddHook(&deliveries{all: delivered})
	if inCluster {
		client.AddHook(resends{})
	}
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
		before := d.server.Load()
		err := next(ctx, cmds)
		if a, ok := ctx.Value(attemptsKey{}).(*attempts); ok && err != nil {
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

// recordLate records the outcome of an attempt to send commands. delivered reports whether the
// server sent anything meanwhile.
func (a *attempts) recordLate(cmds []redis.Cmder, delivered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range cmds {
		switch err := c.Err(); {
		case err != nil && !IsTimeout(err):
			delete(a.late, c)
		case err != nil && delivered:
			if a.late == nil {
				a.late = map[redis.Cmder]bool{}
			}
			a.late[c] = true
		}
	}
}

// isLate reports whether any of the commands lacks an answer from a server that answers others.
func (a *attempts) isLate(cmds ...*redis.Cmd) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range cmds {
		if a.late[c] && c.Err() != nil {
			return true
		}
	}
	return false
}
