package scripts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// IsRefusal reports whether the server answered with an error.
func IsRefusal(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// IsTransient reports whether a server refuses because of a passing state: it is moving a slot,
// starting or changing roles.
func IsTransient(err error) bool {
	for _, prefix := range []string{"TRYAGAIN", "MOVED", "ASK", "CLUSTERDOWN", "LOADING",
		"MASTERDOWN", "READONLY", "NOSCRIPT"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// Classify returns the outcome of a call that failed with this error or whose answer can't be
// decoded: refused, not applied or, if any attempt to send it may have run it, unknown. It also
// marks a Redis that is only late. If an earlier attempt may have run the call and Redis refused
// the last one, Redis can be reached: it is late.
func (c *Call) Classify(err error) error {
	if c.MayHaveRun || mayHaveRun(err) {
		return MarkLate(fmt.Errorf("%w: %w", twotier.ErrUnknownOutcome, err),
			c.Late || IsRefusal(err))
	}
	return MarkLate(NotApplied(err), c.Late || IsBusy(err))
}

// NotApplied wraps the error of a call that was certainly not carried out. Any answer of a server,
// even that it is loading its data or serves no such slot, is a refusal: the server can be reached.
func NotApplied(err error) error {
	if IsRefusal(err) {
		return fmt.Errorf("%w: %w", syncer.ErrRefused, err)
	}
	return fmt.Errorf("%w: %w", syncer.ErrNotApplied, err)
}

// IsTimeout reports whether an attempt failed only because it took too long.
func IsTimeout(err error) bool {
	var failure net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.As(err, &failure) && failure.Timeout()
}

// IsBusy reports whether a server refuses because of other work: it runs a long script, or moves a
// slot.
func IsBusy(err error) bool {
	return redis.HasErrorPrefix(err, "BUSY ") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// MarkLate wraps syncer.ErrLate around the error of an attempt if it was late.
func MarkLate(err error, late bool) error {
	if late {
		return lateError{err}
	}
	return err
}

// lateError is an error that also is syncer.ErrLate.
type lateError struct{ error }

func (e lateError) Unwrap() []error { return []error{syncer.ErrLate, e.error} }

// TextAt returns a string of a reply, or "" if there is none.
func TextAt(reply []any, i int) string {
	if i >= len(reply) {
		return ""
	}
	text, _ := reply[i].(string)
	return text
}

// LeadingNumber returns the number that a text begins with, or 0.
func LeadingNumber(text string) uint64 {
	end := strings.IndexFunc(text+".", func(r rune) bool { return r < '0' || r > '9' })
	n, _ := strconv.ParseUint(text[:end], 10, 64)
	return n
}

// NumberAt returns an integer of a reply, or 0 if there is none.
func NumberAt(reply []any, i int) uint64 {
	if i >= len(reply) {
		return 0
	}
	n, _ := reply[i].(int64)
	return uint64(n)
}

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
