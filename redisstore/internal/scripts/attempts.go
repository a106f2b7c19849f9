package scripts

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// attempts records the attempts to send some commands, as the hooks see them. The client of a
// cluster sends a command again if a node does not run it, if the connection breaks, and if the
// first command of its pipeline is refused, perhaps to another node, while the rest was answered.
// Then commands may run out of order or twice, and only the outcome of the last attempt is
// returned. Callers for which this matters find out through [watchResends].
type attempts struct {
	mu   sync.Mutex
	sent map[redis.Cmder]bool // true if an attempt before the last one may have run the command
	more bool                 // whether any was sent again
	late map[redis.Cmder]bool // true if a server that answers others did not answer the command
}

// attemptsKey is the context key of the attempts to note.
type attemptsKey struct{}

// watchResends returns a context for commands, and the record of their attempts from then on.
func watchResends(ctx context.Context) (context.Context, *attempts) {
	a := &attempts{sent: map[redis.Cmder]bool{}}
	return context.WithValue(ctx, attemptsKey{}, a), a
}

// begin records that commands are about to be sent. Until then, each has the outcome of its last
// attempt. begin clears it, because the client leaves an error in place when a connection breaks
// before the answer: a command that was redirected to that connection would seem to be refused.
func (a *attempts) begin(cmds []redis.Cmder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range cmds {
		ran, again := a.sent[c]
		a.sent[c] = ran || again && mayHaveRun(c.Err())
		a.more = a.more || again
		c.SetErr(nil)
	}
}

// resent reports whether any command was sent again.
func (a *attempts) resent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.more
}

// mayHaveRun reports whether a command may have been run by an attempt before its last one.
func (a *attempts) mayHaveRun(c redis.Cmder) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent[c]
}

// mayHaveRun reports whether an attempt with this outcome may have run its command. Redis has
// certainly not carried out a command that it answered with an error, nor one that never had a
// connection.
func mayHaveRun(err error) bool {
	var op *net.OpError
	unsent := errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted)
	return !unsent && !IsRefusal(err)
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
