package resp

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/account"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// conn is a connection. All of it except the fields that mu guards belongs to the goroutine that
// serves it.
type conn struct {
	net.Conn
	raw     net.Conn // beneath TLS
	server  *Server
	from    *account.Client[usage]
	session session
	began   time.Time

	in     input
	filled bool              // the last bytes filled the buffer: there are probably more
	small  *[smallInput]byte // the buffer to come back to while in has a large one; nil otherwise
	taken  int64             // of the memory for small works
	// work executes the commands of one read; nil while the connection waits for input. Its size
	// matches the input's buffer.
	work *work

	now     time.Time // when the last bytes arrived
	partial time.Time // when the command that has not been received completely began; or zero
	idleBy  time.Time // the read deadline that is set, unless a part of a command is there
	writeBy time.Time // the write deadline that is set
	tally   tally
	greeted bool  // something was received
	failed  error // why the connection can't go on
	quit    bool  // the client asked to end

	mu       sync.Mutex
	draining bool
	readBy   time.Time // when draining: no write waits longer than this, unless it is zero
}

// longAgo is a deadline that has passed.
func longAgo() time.Time { return time.Unix(1, 0) }

// serve answers commands until the connection ends.
func (c *conn) serve() {
	for c.failed == nil && !c.quit {
		if c.failed = c.receive(); c.failed == nil {
			c.answer()
		}
	}
	if errors.Is(c.failed, os.ErrDeadlineExceeded) && !c.authenticated() {
		c.setWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(appendError(nil, errNoAuth))
	}
}

// errNoAuth is the error of a command before authentication.
const errNoAuth errorReply = codeNoAuth + " Authentication required."

// receive waits for more input.
func (c *conn) receive() error {
	c.in.compact()
	if c.in.full() && !c.enlarge(time.Now().Add(c.server.opts.RequestTimeout/2)) {
		c.setWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(appendError(nil, errNoMemory))
		return errors.New("no memory for a long command")
	}
	if err := c.limitReading(); err != nil {
		return err
	}
	n, err := c.Conn.Read(c.in.space())
	c.in.end += n
	c.now = time.Now()
	c.filled = c.in.full()
	switch {
	case n > 0:
		if c.filled {
			c.enlarge(time.Time{})
		}
		c.greeted = true
		return nil
	case c.large() && !c.in.partial() && errors.Is(err, os.ErrDeadlineExceeded):
		c.shrink() // there is no more: wait with less memory
		return c.receive()
	}
	return err
}

// holdLarge is how long a connection that has no part of a command may keep a large buffer.
const holdLarge = 100 * time.Millisecond

// limitReading sets the read deadline. Setting one is expensive, so it is put off while the current
// deadline is only slightly too early.
func (c *conn) limitReading() error {
	opt := &c.server.opts
	switch {
	case c.in.partial():
		if c.partial.IsZero() {
			c.partial, c.idleBy = c.now, time.Time{}
			return c.setReadDeadline(c.now.Add(opt.ReadTimeout))
		}
		return nil
	case c.large():
		c.idleBy = time.Time{}
		return c.setReadDeadline(c.now.Add(holdLarge))
	case !c.authenticated() || !c.greeted && opt.TLS != nil: // a handshake is no use of it
		return c.setReadDeadline(c.began.Add(opt.ReadTimeout))
	}
	if c.idleBy.Sub(c.now) < opt.IdleTimeout {
		c.idleBy = c.now.Add(opt.IdleTimeout + opt.IdleTimeout/4)
		return c.setReadDeadline(c.idleBy)
	}
	return nil
}

// setReadDeadline sets the read deadline, unless the connection is being drained.
func (c *conn) setReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return os.ErrDeadlineExceeded
	}
	return c.SetReadDeadline(t)
}

// setWriteDeadline sets the write deadline, or an earlier one if the connection is being drained.
func (c *conn) setWriteDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.readBy.IsZero() && t.After(c.readBy) {
		t = c.readBy
	}
	_ = c.SetWriteDeadline(t)
}

// drain ends the connection once the commands already read are answered. The client has until
// readBy to read the answers; a zero readBy sets no limit.
func (c *conn) drain(readBy time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining, c.readBy = true, readBy
	_ = c.SetReadDeadline(longAgo())
	if !readBy.IsZero() {
		_ = c.SetWriteDeadline(readBy)
	}
}

// answer executes and answers the commands that have been received completely.
func (c *conn) answer() {
	if !c.begin() {
		return
	}
	c.refreshGrant()
	c.work.Grant, c.work.Rules = c.session.grant, c.server.opts.Rules
	for c.failed == nil && !c.quit {
		ok, err := c.in.next()
		if err != nil {
			c.execute()
			c.fail(errorf(codeErr, "Protocol error: %v", err))
			break
		}
		if !ok {
			break
		}
		c.partial = time.Time{} // the next command has a new deadline
		if len(c.in.args) > 0 {
			c.command(c.in.args)
		}
	}
	c.execute()
	c.write()
	c.finish()
}

// command executes one command, or adds it to the batch of operations.
func (c *conn) command(args [][]byte) {
	id := commandOf(args[0])
	c.count(id)
	e := c.allowed(id, args)
	if e == "" {
		switch id {
		case cmdAcquire:
			e = c.work.parse(twotier.Acquire, args)
		case cmdAdd:
			e = c.work.parse(twotier.Add, args)
		case cmdCount:
			e = c.work.parse(twotier.Count, args)
		case cmdThrottle:
			e = c.work.parseThrottle(args)
		default:
			c.execute()
			e = c.other(id, args)
		}
	}
	switch {
	case e != "":
		c.execute()
		c.error(e)
		if c.in.inline && id == cmdUnknown { // a client of another protocol, such as a browser
			c.failed = errors.New("not a Redis client")
		}
	case len(c.work.Ops) >= most(c.large()) || c.work.RuledCount() >= most(c.large()):
		c.execute()
	}
	c.writeFull()
}

// allowed returns the reason why a command can't be executed at all, or "".
func (c *conn) allowed(id command, args [][]byte) errorReply {
	d := &c.server.commands[id]
	switch {
	case !c.authenticated() && !c.server.open[id]:
		return errNoAuth
	case id == cmdUnknown:
		return errorf(codeErr, "unknown command '%s'", request.Clip(args[0]))
	case !d.accepts(len(args)):
		return wrongArguments(d.name)
	}
	return ""
}

// other executes a command that is not an operation of a batch.
func (c *conn) other(id command, args [][]byte) errorReply {
	switch id {
	case cmdSeries:
		return c.series(args)
	case cmdTop:
		return c.top(args)
	case cmdForget:
		return c.forget(args)
	case cmdDistinct:
		return c.distinct(args)
	case cmdHello:
		return c.withGrant(c.hello(args))
	case cmdAuth:
		return c.withGrant(c.auth(args))
	case cmdClient:
		return c.client(args)
	case cmdCommand:
		return c.describeCommands(args)
	case cmdConfig:
		return c.config(args)
	case cmdPing:
		return c.ping(args)
	case cmdEcho:
		c.work.out = appendBulk(c.work.out, args[1])
	case cmdSelect:
		if string(args[1]) != "0" {
			return errorf(codeErr, "DB index is out of range; there is only 0")
		}
		c.reply(appendSimple, "OK")
	case cmdInfo:
		c.info()
	case cmdQuit:
		c.reply(appendSimple, "OK")
		c.quit = true
	case cmdReset:
		c.resetSession()
		c.work.Grant = nil
	}
	return ""
}

// withGrant makes the new grant of the connection apply to the commands that follow.
func (c *conn) withGrant(e errorReply) errorReply {
	c.work.Grant = c.session.grant
	return e
}

func (c *conn) ping(args [][]byte) errorReply {
	switch len(args) {
	case 1:
		c.reply(appendSimple, "PONG")
	case 2:
		c.work.out = appendBulk(c.work.out, args[1])
	default:
		return wrongArguments("ping")
	}
	return ""
}

// reply appends a text in the form of a reply.
func (c *conn) reply(form func(b []byte, text string) []byte, text string) {
	c.work.out = form(c.work.out, text)
}

// error answers with an error.
func (c *conn) error(e errorReply) {
	c.server.countError(e)
	c.work.out = appendError(c.work.out, e)
}

// fail answers with an error and ends the connection.
func (c *conn) fail(e errorReply) {
	c.error(e)
	c.failed = errors.New(string(e))
}

// execute executes and answers the collected operations.
func (c *conn) execute() {
	w := c.work
	if len(w.Ops) == 0 {
		return
	}
	if c.failed != nil { // no client would get the answers
		w.Reset()
		return
	}
	w.Link()
	results := w.EmptyResults()
	ctx := c.deadline()
	if len(w.Ops) == 1 {
		results[0].Err = c.server.opts.Service.Do(ctx, &w.Ops[0], &results[0])
	} else {
		c.server.opts.Service.DoAll(ctx, w.Ops, results)
	}
	for i := range results {
		if err := results[i].Err; err != nil {
			c.error(c.server.errorOfOp(err, &w.Ops[i]))
		} else {
			w.answer(i, &results[i])
		}
		c.writeFull()
	}
	c.server.verdicts.Count(c.arrival(), &w.Request)
	w.Reset()
}

// arrival describes the arrival of the commands for the counters of verdicts.
func (c *conn) arrival() *ask.Arrival {
	return &ask.Arrival{Endpoint: verdicts.RESP, Began: c.now}
}

// deadline returns a context that bounds the next execution.
func (c *conn) deadline() context.Context {
	w := c.work
	if !w.context.Finish() {
		w.renew()
	}
	w.context.Reset(time.Now().Add(c.server.opts.RequestTimeout), nil)
	return w.context
}

// writeFull writes the answers once there are many.
func (c *conn) writeFull() {
	limit := smallOutput
	if c.large() {
		limit = largeText
	}
	if len(c.work.out) >= limit {
		c.write()
	}
}

// write writes the answers. After a failed write, further answers are dropped.
func (c *conn) write() {
	w, timeout := c.work, c.server.opts.WriteTimeout
	if len(w.out) > 0 && (c.failed == nil || !errors.Is(c.failed, errWrite)) {
		now := time.Now() // executing may have taken longer than a client may take to read
		if c.writeBy.Sub(now) < timeout {
			c.writeBy = now.Add(timeout + timeout/4)
			c.setWriteDeadline(c.writeBy)
		}
		if _, err := c.Conn.Write(w.out); err != nil {
			c.failed = errors.Join(errWrite, err)
		}
	}
	w.out = w.out[:0]
}

// errWrite reports that answers can't be delivered.
var errWrite = errors.New("can't write answers")
