package resp

import (
	"strings"
	"time"

	"twotier.dev/twotier"
)

// transaction holds the commands between MULTI and EXEC.
type transaction struct {
	queue    []byte // the commands, as a client sends them in one pipeline
	commands int    // in the queue
	failed   bool   // a command was refused: EXEC executes none
}

// A transaction is bounded like the part of a pipeline that is read and executed at once.
const (
	maxQueued = largeOps   // commands
	maxQueue  = largeInput // bytes
	// leastQueue is the size of a new queue in bytes.
	leastQueue = 512
)

const (
	errNested      errorReply = codeErr + " MULTI calls can not be nested"
	errNoMultiExec errorReply = codeErr + " EXEC without MULTI"
	errNoMultiDrop errorReply = codeErr + " DISCARD without MULTI"
	errWatchInside errorReply = codeErr + " WATCH inside MULTI is not allowed"
	errWatch       errorReply = codeErr + " WATCH: no key can be watched, because counts change " +
		"with time; TT.ACQUIRE compares and counts several keys in one step"
	errAborted errorReply = codeExecAbort + " Transaction discarded because of previous errors."
)

// abortedBy returns the error of an EXEC that e prevents.
func abortedBy(e errorReply) errorReply {
	return codeExecAbort + " Transaction discarded because of: " +
		errorReply(strings.TrimPrefix(string(e), codeErr+" "))
}

// queueCommand checks and queues a command that follows MULTI. It returns false, and does nothing,
// if the command is one that is executed immediately even there.
func (c *conn) queueCommand(id command, args [][]byte) bool {
	e := c.checkCommand(id, args)
	if e == "" {
		switch id {
		case cmdMulti, cmdExec, cmdDiscard, cmdWatch, cmdReset, cmdQuit:
			return false
		}
		e = c.checkArguments(id, args)
	}
	if e == "" {
		e = c.enqueue(args)
	}
	switch {
	case e == "":
		c.appendReply(appendSimple, "QUEUED")
	case id == cmdExec:
		c.dropTransaction()
		c.replyError(abortedBy(e))
	default:
		c.multi.failed = true
		c.forgetQueue()
		c.replyError(e)
	}
	c.writeIfFull()
	return true
}

// checkArguments returns the reason why a command of the service would be refused before it is
// executed, or "".
func (c *conn) checkArguments(id command, args [][]byte) (e errorReply) {
	parsed, e := c.parseOp(id, args)
	switch {
	case parsed:
	case id == cmdSeries:
		_, e = c.parseQuery(args, true, twotier.RoleRead)
	case id == cmdTop:
		_, e = c.parseTop(args)
	case id == cmdForget:
		_, e = c.parseQuery(args, false, twotier.RoleAdmin)
	case id == cmdSettle:
		_, e = parseSettle(args)
	case id == cmdRenew:
		_, e = parseRenew(args)
	case id == cmdExplain:
		_, e = parseExplain(args)
	}
	c.work.Reset()
	return e
}

// enqueue adds a command to the queue, unless EXEC can't execute it anyway.
func (c *conn) enqueue(args [][]byte) errorReply {
	m := c.multi
	if m.failed {
		return ""
	}
	size := len(m.queue) + headerSize(len(args))
	for _, arg := range args {
		size += headerSize(len(arg)) + len(arg) + len("\r\n")
	}
	if m.commands == maxQueued || size > maxQueue {
		return errorf(codeErr, "a transaction has at most %d commands and %d bytes; send several",
			maxQueued, maxQueue)
	}
	if size > cap(m.queue) {
		grown := min(max(size, 2*cap(m.queue), leastQueue), maxQueue)
		if !c.Client.Shares[queues].TryTake(int64(grown) - c.queued) {
			return errNoMemory
		}
		c.queued = int64(grown)
		m.queue = append(make([]byte, 0, grown), m.queue...)
	}
	m.queue = appendArray(m.queue, len(args))
	for _, arg := range args {
		m.queue = appendBulk(m.queue, arg)
	}
	m.commands++
	return ""
}

// headerSize returns the number of bytes that appendHeader appends.
func headerSize(n int) int {
	size := len("*0\r\n")
	for ; n > 9; n /= 10 {
		size++
	}
	return size
}

// executeTransactional executes a command that begins, ends or guards a transaction.
func (c *conn) executeTransactional(id command) errorReply {
	switch {
	case id == cmdExec:
		return c.executeExec()
	case id == cmdMulti && c.multi != nil:
		return errNested
	case id == cmdMulti:
		c.multi = new(transaction)
	case id == cmdDiscard && c.multi == nil:
		return errNoMultiDrop
	case id == cmdDiscard:
		c.dropTransaction()
	case id == cmdWatch && c.multi != nil:
		return errWatchInside
	case id == cmdWatch:
		return errWatch
	}
	c.appendReply(appendSimple, "OK")
	return ""
}

// executeExec executes the queued commands in order and answers an array of their replies. An error
// of one command is its reply, and does not keep the others from being executed.
func (c *conn) executeExec() errorReply {
	m := c.multi
	c.multi = nil
	switch {
	case m == nil:
		return errNoMultiExec
	case m.failed:
		return errAborted
	case !c.reserveQueued(len(m.queue)):
		c.forgetQueue()
		return abortedBy(errNoMemory)
	}
	c.work.out = appendArray(c.work.out, m.commands)
	in := input{buf: m.queue, end: len(m.queue)}
	for c.failed == nil {
		if ok, _ := in.nextCommand(); !ok {
			break
		}
		c.handleCommand(c.server.commandOf(in.args[0]), in.args)
	}
	c.executeBatch() // its keys are in the queue
	c.forgetQueue()
	return ""
}

// reserveQueued reserves the memory to execute that many bytes of queued commands, as if they had
// been received at once.
func (c *conn) reserveQueued(bytes int) bool {
	by := time.Now().Add(c.server.opts.RequestTimeout / 2)
	switch more := workBytes(bytes) - c.taken; {
	case c.hasLargeBuffer():
		return true
	case bytes > smallInput:
		return c.enlarge(by)
	case more > 0:
		if !c.Client.Shares[smallWorks].Take(more, by) {
			return false
		}
		c.taken += more
	}
	return true
}

// dropTransaction forgets the queued commands and ends the transaction, if there is one.
func (c *conn) dropTransaction() {
	c.multi = nil
	c.forgetQueue()
}

// forgetQueue returns the memory of the queue.
func (c *conn) forgetQueue() {
	if c.multi != nil {
		c.multi.queue = nil
	}
	if c.queued > 0 {
		c.Client.Shares[queues].Release(c.queued)
		c.queued = 0
	}
}
