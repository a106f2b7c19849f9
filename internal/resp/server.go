package resp

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/metrics"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// Service executes the commands that a [Server] reads.
type Service interface {
	ask.Service
	ask.Keys
	ask.Resetter
}

// Options configure a [Server]. The zero value of each field is the documented default.
type Options struct {
	// Service executes the operations. Required.
	Service Service
	// Rules resolves the names of rules. Default: none, every name is unknown.
	Rules ask.Rules
	// Shadow determines the namespaces in which limits of commands refuse nothing. Default: none.
	Shadow twotier.Shadow
	// Holds makes and settles holds. Default: none.
	Holds *ask.Holds
	// Verdicts counts and records the verdicts of acquires. Default: nothing is.
	Verdicts *verdicts.Counters
	// Listen is the TCP address; port 0 picks a free one. Required.
	Listen string
	// Tokens resolves the passwords of AUTH. Default: anyone who can connect may do everything.
	// AdminToken also grants everything.
	Tokens     ask.Tokens
	AdminToken string
	// Version is the version of the program that INFO and HELLO report.
	Version string
	// Limits have the defaults in [Defaults]. A request is the commands of one read. ReadTimeout is
	// also how long a new connection may take to authenticate. WriteTimeout and IdleTimeout are
	// kept give or take a quarter.
	listener.Limits
}

// Defaults returns the defaults of [Options].Limits. Clients keep connections in pools, many for
// half an hour. One that waits for a command is a goroutine and a buffer.
func Defaults() listener.Defaults {
	return listener.Defaults{Package: "resp", Idle: time.Hour, Memory: 32, LeastMemory: 4,
		Conn: 8<<10 + smallInput, TLS: 32 << 10, Sixteenths: 8}
}

// withDefaults returns o with its defaults filled in, or an error if o can't be used.
func (o Options) withDefaults() (Options, error) {
	if o.Service == nil || o.Listen == "" {
		return o, errors.New("resp: Options needs Service and Listen")
	}
	return o, o.Fill(Defaults())
}

// Server serves one node to Redis clients. At its end the commands already read are executed and
// answered. Its methods may be called from several goroutines.
type Server struct {
	*listener.Listener[*conn]
	metrics.Unchecked

	opts     Options
	access   ask.Access
	commands [commandCount]description
	names    map[string]command // of commands, in capital letters
	open     [commandCount]bool // commands that need no authentication
	began    time.Time

	conns    *listener.Conns
	works    workPool
	buffers  sync.Pool // of *[largeInput]byte
	counters counters
	lastID   atomic.Int64
}

// New returns a server that is not listening yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, commands: descriptions(), began: time.Now(),
		access: ask.NewAccess(o.Tokens, o.AdminToken)}
	s.names = byName(&s.commands)
	for i := range s.commands {
		s.open[i] = strings.Contains(s.commands[i].flags, "no_auth")
	}
	sixteenth := o.MaxMemory / 16
	s.conns = listener.NewConns(o.MaxConns, o.MaxConnsPerAddress, []*listener.Account{
		smallWorks: o.Account(3*sixteenth, workBytes(smallInput)),
		largeWorks: o.Account(2*sixteenth, largeWork),
		queues:     o.Account(sixteenth, maxQueue),
		answers:    o.Account(2*sixteenth, 1<<20),
	}...)
	s.buffers.New = func() any { return new([largeInput]byte) }
	s.counters.errors = make([]atomic.Int64, len(errorCodes()))
	s.Listener = listener.New(listener.Options[*conn]{
		Sockets: []*listener.Socket{{Flag: "resp", Address: o.Listen, Conns: s.conns}}, TLS: o.TLS,
		Make: s.newConn, Serve: s.runConn, Reject: rejection, Logger: o.Logger,
		Kind: "connections of Redis clients"})
	return s, nil
}

// newConn returns the state of a connection.
func (s *Server) newConn(a *listener.Admitted) *conn {
	now := time.Now()
	c := &conn{Admitted: a, server: s, began: now, now: now,
		session: session{id: s.lastID.Add(1), proto: resp2}}
	c.in.buf = make([]byte, smallInput)
	return c
}

// rejection answers a connection that is turned away.
func rejection(why string) []byte {
	return appendError(nil, errorf(codeErr, "max number of clients reached: %s", why))
}

// runConn serves a connection until it ends. The end of a connection affects no other: the client
// left, or sent input that is not RESP.
func (s *Server) runConn(c *conn) {
	defer s.endConn(c)
	c.serve()
}

// endConn ends a connection. A panic ends only its own connection.
func (s *Server) endConn(c *conn) {
	if v := recover(); v != nil {
		s.opts.Logger.Error("panic in a command", "panic", fmt.Sprint(v), "stack",
			string(debug.Stack()))
	}
	if errors.Is(c.failed, errWrite) {
		c.Raw.Close() // TLS would wait for the client to read its farewell
	}
	c.Conn.Close()
	c.releaseAll()
}

// tally counts a run of equal commands, so that a pipeline touches the shared counter once.
type tally struct {
	of command
	n  int64
}

// countCommand counts a command.
func (c *conn) countCommand(id command) {
	if id != c.tally.of {
		c.flushTally()
		c.tally.of = id
	}
	c.tally.n++
}

func (c *conn) flushTally() {
	if c.tally.n > 0 {
		c.server.counters.commands[c.tally.of].Add(c.tally.n)
		c.tally.n = 0
	}
}

// counters are the values of the metrics.
type counters struct {
	commands [commandCount]atomic.Int64
	errors   []atomic.Int64 // in the order of codes
}

// countError counts an error by its code.
func (s *Server) countError(e errorReply) {
	code, _, _ := strings.Cut(string(e), " ")
	for i, name := range errorCodes() {
		if name == code {
			s.counters.errors[i].Add(1)
		}
	}
}

// Collect implements [prometheus.Collector].
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	commands := to.Totals("twotier_resp_commands_total", "Redis commands received, by name.",
		"command")
	for i := range s.counters.commands {
		if n := s.counters.commands[i].Load(); n > 0 {
			commands(n, s.commands[i].name)
		}
	}
	failures := to.Totals("twotier_resp_errors_total",
		"Redis commands answered with an error, by code.", "code")
	for i, code := range errorCodes() {
		if n := s.counters.errors[i].Load(); n > 0 {
			failures(n, code)
		}
	}
	to.Gauge("twotier_resp_connections", "Open connections of Redis clients.",
		int64(s.conns.InUse()))
	to.Total("twotier_resp_rejected_total",
		"Connections of Redis clients turned away because there were too many.", s.Rejected())
	to.Gauge("twotier_resp_memory_bytes",
		"Memory taken for queueing, executing and answering Redis commands.",
		s.conns.Held(answers))
}

// The accounts of memory.
const (
	smallWorks = iota
	largeWorks
	queues  // of transactions
	answers // that grow with the rules
)

// errNoMemory answers commands for which there is no memory. None of them has been executed.
const errNoMemory errorReply = codeBusy + " too much is being read and answered at this moment; " +
	"nothing was counted; retry_after_ms=1000"

// hasLargeBuffer reports whether the connection has a large buffer.
func (c *conn) hasLargeBuffer() bool { return c.small != nil }

// enlarge gives the connection a large buffer as soon as there is memory for one. It gives up at
// by.
func (c *conn) enlarge(by time.Time) bool {
	if c.hasLargeBuffer() || !c.Client.Shares[largeWorks].Take(largeWork, by) {
		return false
	}
	c.small = (*[smallInput]byte)(c.in.buf)
	buf := c.server.buffers.Get().(*[largeInput]byte)
	c.in.moveTo(buf[:])
	return true
}

// shrink returns the large buffer once the remaining bytes fit in the small one.
func (c *conn) shrink() {
	buf := (*[largeInput]byte)(c.in.buf)
	c.in.moveTo(c.small[:])
	c.small = nil
	c.server.buffers.Put(buf)
	c.Client.Shares[largeWorks].Release(largeWork)
}

// reserveWork reserves the memory to execute the received commands. If there is none, the
// connection fails.
func (c *conn) reserveWork() bool {
	c.taken = 0
	if !c.hasLargeBuffer() {
		c.taken = workBytes(c.in.end - c.in.start)
	}
	if c.taken > 0 && !c.Client.Shares[smallWorks].Take(c.taken,
		c.now.Add(c.server.opts.RequestTimeout)) {
		c.taken = 0
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(appendError(nil, errNoMemory))
		c.failed = errors.New("no memory")
		return false
	}
	c.work = c.server.works.get(c.hasLargeBuffer())
	return true
}

// reserveAnswer reserves memory for an answer that grows with what the node has, before it is
// built. The whole share of an address is enough for any answer, so that it builds one large answer
// at a time. reserveAnswer returns the number of bytes for releaseAnswer.
func (c *conn) reserveAnswer(n int64) (taken int64, ok bool) {
	taken = min(n, c.server.conns.Accounts[answers].Each)
	by := time.Now().Add(c.server.opts.RequestTimeout / 2)
	return taken, c.Client.Shares[answers].Take(taken, by)
}

// releaseAnswer returns what reserveAnswer has reserved, once the answer is written.
func (c *conn) releaseAnswer(n int64) { c.Client.Shares[answers].Release(n) }

// finishWork returns the work to its pool, releases its memory, and drops an unused large buffer.
func (c *conn) finishWork() {
	w, large := c.work, c.hasLargeBuffer()
	c.work = nil
	if !w.context.Finish() {
		w.renewContext()
	}
	c.flushTally()
	small := c.server.conns.Accounts[smallWorks]
	if lean := w.ResultCapacity() <= leanOps; lean || large || small.InUse() <= small.Most/2 {
		c.server.works.put(w, large)
	}
	c.releaseWork()
	if large && c.in.end-c.in.start < smallInput && !c.filled {
		c.shrink()
	}
}

// releaseWork returns the memory that reserveWork has reserved.
func (c *conn) releaseWork() {
	if c.taken > 0 {
		c.Client.Shares[smallWorks].Release(c.taken)
		c.taken = 0
	}
}

// releaseAll returns all memory of the connection.
func (c *conn) releaseAll() {
	c.work = nil // after a panic it may be in any state, and is left to the collector
	c.releaseWork()
	c.dropTransaction()
	if c.hasLargeBuffer() {
		c.in.start, c.in.end = 0, 0
		c.shrink()
	}
	c.End()
}

// renewContext replaces a context that another goroutine may still hold.
func (w *work) renewContext() { w.context = new(request.Context) }
