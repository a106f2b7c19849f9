package resp

import (
	"context"
	"errors"
	"os"
	"time"

	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// conn is a connection. All of it belongs to the goroutine that serves it.
type conn struct {
	*listener.Admitted
	server  *Server
	session session
	began   time.Time

	in     input
	filled bool              // the last bytes filled the buffer: there are probably more
	small  *[smallInput]byte // the buffer to come back to while in has a large one; nil otherwise
	taken  int64             // of the memory for small works
	// work executes the commands of one read; nil while the connection waits for input. Its size
	// matches the input's buffer.
	work *work

	multi  *transaction // the commands since MULTI; nil outside a transaction
	queued int64        // of the memory for queues

	now     time.Time // when the last bytes arrived
	partial time.Time // when the command that has not been received completely began; or zero
	idleBy  time.Time // the read deadline that is set, unless a part of a command is there
	writeBy time.Time // the write deadline that is set
	tally   tally
	greeted bool  // something was received
	failed  error // why the connection can't go on
	quit    bool  // the client asked to end
}

// serve answers commands until the connection ends.
func (c *conn) serve() {
	for c.failed == nil && !c.quit {
		if c.failed = c.receive(); c.failed == nil {
			c.answerReceived()
		}
	}
	if errors.Is(c.failed, os.ErrDeadlineExceeded) && !c.authenticated() {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(appendError(nil, errNoAuth))
	}
}

// errNoAuth is the error of a command before authentication.
const errNoAuth errorReply = codeNoAuth + " Authentication required."

// receive waits for more input.
func (c *conn) receive() error {
	c.in.compact()
	if c.in.isFull() && !c.enlarge(time.Now().Add(c.server.opts.RequestTimeout/2)) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(appendError(nil, errNoMemory))
		return errors.New("no memory for a long command")
	}
	if err := c.limitReading(); err != nil {
		return err
	}
	n, err := c.Conn.Read(c.in.freeSpace())
	c.in.end += n
	c.now = time.Now()
	c.filled = c.in.isFull()
	switch {
	case n > 0:
		if c.filled {
			c.enlarge(time.Time{})
		}
		c.greeted = true
		return nil
	case c.hasLargeBuffer() && !c.in.hasPartial() && errors.Is(err, os.ErrDeadlineExceeded):
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
	case c.in.hasPartial():
		if c.partial.IsZero() {
			c.partial, c.idleBy = c.now, time.Time{}
			return c.SetReadDeadline(c.now.Add(opt.ReadTimeout))
		}
		return nil
	case c.hasLargeBuffer():
		c.idleBy = time.Time{}
		return c.SetReadDeadline(c.now.Add(holdLarge))
	case !c.authenticated() || !c.greeted && opt.TLS != nil: // a handshake is no use of it
		return c.SetReadDeadline(c.began.Add(opt.ReadTimeout))
	}
	if c.idleBy.Sub(c.now) < opt.IdleTimeout {
		c.idleBy = c.now.Add(opt.IdleTimeout + opt.IdleTimeout/4)
		return c.SetReadDeadline(c.idleBy)
	}
	return nil
}

// answerReceived executes and answers the commands that have been received completely.
func (c *conn) answerReceived() {
	if !c.reserveWork() {
		return
	}
	c.refreshGrant()
	c.work.Grant, c.work.Rules = c.session.grant, c.server.opts.Rules
	c.work.Shadow = c.server.opts.Shadow
	c.work.Holds = c.server.opts.Holds
	for c.failed == nil && !c.quit {
		ok, err := c.in.nextCommand()
		if err != nil {
			c.executeBatch()
			c.replyErrorAndEnd(errorf(codeErr, "Protocol error: %v", err))
			break
		}
		if !ok {
			break
		}
		c.partial = time.Time{} // the next command has a new deadline
		if args := c.in.args; len(args) > 0 {
			id := c.server.commandOf(args[0])
			c.countCommand(id)
			if c.multi == nil || !c.queueCommand(id, args) {
				c.handleCommand(id, args)
			}
		}
	}
	c.executeBatch()
	c.writeAnswers()
	c.finishWork()
}

// handleCommand executes one command, or adds it to the batch of operations.
func (c *conn) handleCommand(id command, args [][]byte) {
	e := c.checkCommand(id, args)
	if e == "" {
		var parsed bool
		if parsed, e = c.parseOp(id, args); !parsed {
			c.executeBatch()
			e = c.executeUnbatched(id, args)
		}
	}
	switch {
	case e != "":
		c.executeBatch()
		c.replyError(e)
		if c.in.inline && id == cmdUnknown { // a client of another protocol, such as a browser
			c.failed = errors.New("not a Redis client")
		}
	case len(c.work.Ops) >= maxBatchOps(c.hasLargeBuffer()) ||
		c.work.RuledCount() >= maxBatchOps(c.hasLargeBuffer()):
		c.executeBatch()
	}
	c.writeIfFull()
}

// checkCommand returns the reason why a command can't be executed at all, or "".
func (c *conn) checkCommand(id command, args [][]byte) errorReply {
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

// executeUnbatched executes a command that is not an operation of a batch.
func (c *conn) executeUnbatched(id command, args [][]byte) errorReply {
	switch id {
	case cmdSeries:
		return c.executeSeries(args)
	case cmdTop:
		return c.executeTop(args)
	case cmdForget:
		return c.executeReset(args)
	case cmdSettle:
		return c.executeSettle(args)
	case cmdRelease:
		return c.settle(args[1], 0)
	case cmdExplain:
		return c.executeExplain(args)
	case cmdRenew:
		return c.executeRenew(args)
	case cmdHello:
		return c.withGrant(c.executeHello(args))
	case cmdAuth:
		return c.withGrant(c.executeAuth(args))
	case cmdClient:
		return c.executeClient(args)
	case cmdCommand:
		return c.describeCommands(args)
	case cmdConfig:
		return c.executeConfig(args)
	case cmdPing:
		return c.executePing(args)
	case cmdEcho:
		c.work.out = appendBulk(c.work.out, args[1])
	case cmdSelect:
		if string(args[1]) != "0" {
			return errorf(codeErr, "DB index is out of range; there is only 0")
		}
		c.appendReply(appendSimple, "OK")
	case cmdInfo:
		c.executeInfo()
	case cmdQuit:
		c.appendReply(appendSimple, "OK")
		c.quit = true
	case cmdMulti, cmdExec, cmdDiscard, cmdWatch, cmdUnwatch:
		return c.executeTransactional(id)
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

func (c *conn) executePing(args [][]byte) errorReply {
	switch len(args) {
	case 1:
		c.appendReply(appendSimple, "PONG")
	case 2:
		c.work.out = appendBulk(c.work.out, args[1])
	default:
		return wrongArguments("ping")
	}
	return ""
}

// appendReply appends a text in the form of a reply.
func (c *conn) appendReply(form func(b []byte, text string) []byte, text string) {
	c.work.out = form(c.work.out, text)
}

// replyError answers with an error.
func (c *conn) replyError(e errorReply) {
	c.server.countError(e)
	c.work.out = appendError(c.work.out, e)
}

// replyErrorAndEnd answers with an error and ends the connection.
func (c *conn) replyErrorAndEnd(e errorReply) {
	c.replyError(e)
	c.failed = errors.New(string(e))
}

// executeBatch executes and answers the collected operations.
func (c *conn) executeBatch() {
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
	ctx := c.executionContext()
	if len(w.Ops) == 1 {
		results[0].Err = c.server.opts.Service.Do(ctx, &w.Ops[0], &results[0])
	} else {
		c.server.opts.Service.DoAll(ctx, w.Ops, results)
	}
	if w.HasReleases() {
		w.AwaitDeadlines(ctx, results)
	}
	if w.HasValues() {
		w.FailUnjudged()
	}
	for i := range results {
		res := &results[i]
		if err := res.Err; err != nil {
			c.replyError(c.server.errorOf(err, w.FailureOfOp(i, err, len(w.Ops[i].Checks) > 1)))
		} else if e := w.refusalOfValues(i, res); e != "" {
			c.replyError(e)
		} else {
			w.appendAnswer(i, res)
		}
		c.writeIfFull()
	}
	w.CountVerdicts(c.server.opts.Verdicts, c.arrival())
	w.Reset()
}

// arrival describes the arrival of the commands for the counters of verdicts.
func (c *conn) arrival() *verdicts.Arrival {
	return &verdicts.Arrival{Endpoint: verdicts.RESP, Began: c.now}
}

// executionContext returns a context that bounds the next execution.
func (c *conn) executionContext() context.Context {
	w := c.work
	if !w.context.Finish() {
		w.renewContext()
	}
	w.context.Reset(time.Now().Add(c.server.opts.RequestTimeout), nil)
	return w.context
}

// writeIfFull writes the answers once there are many.
func (c *conn) writeIfFull() {
	limit := smallOutput
	if c.hasLargeBuffer() {
		limit = largeText
	}
	if len(c.work.out) >= limit {
		c.writeAnswers()
	}
}

// writeAnswers writes the answers. After a failed write, further answers are dropped.
func (c *conn) writeAnswers() {
	w, timeout := c.work, c.server.opts.WriteTimeout
	if len(w.out) > 0 && (c.failed == nil || !errors.Is(c.failed, errWrite)) {
		now := time.Now() // executing may have taken longer than a client may take to read
		if c.writeBy.Sub(now) < timeout {
			c.writeBy = now.Add(timeout + timeout/4)
			_ = c.SetWriteDeadline(c.writeBy)
		}
		if _, err := c.Conn.Write(w.out); err != nil {
			c.failed = errors.Join(errWrite, err)
		}
	}
	w.out = w.out[:0]
}

// errWrite reports that answers can't be delivered.
var errWrite = errors.New("can't write answers")
