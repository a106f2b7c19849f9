package peer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/replay"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/trace"
)

// Local is the node that a [Server] answers for; [node.Node] implements it.
type Local interface {
	// Serve runs operations of another node in order and sets Err in each result.
	Serve(ctx context.Context, ops []twotier.Op, res []twotier.Result)
	// ServeTasks does the same with tasks that do more than run their operation.
	ServeTasks(ctx context.Context, tasks []rpc.Task, res []twotier.Result)
	// Respond answers a request of another node.
	Respond(ctx context.Context, request any) (response any, err error)
}

// ServerOptions configure a [Server].
type ServerOptions struct {
	// Self is the name of this process. Required.
	Self string
	// Secret is shared by all nodes. Default: none, messages are plain.
	Secret []byte
	// Node executes the messages. Required.
	Node Local
	// ReplyBytes bounds the replies kept for repeated messages, in bytes. Default and maximum: 64
	// MiB.
	ReplyBytes int64
	// Tracer records a span of every call that is executed for another node as part of a sampled
	// trace. Default: none.
	Tracer trace.Tracer
	// Logger receives refused messages. Default: none.
	Logger *slog.Logger
}

// Server handles messages of other nodes. Its methods may be called concurrently.
type Server struct {
	opt   ServerOptions
	keys  *keyring
	count sealCounter
	clock elapsed.Clock
	pool  sync.Pool // of *scratch
	// replies holds the reply to the last message of each worker. Only the process of a worker can
	// continue it, because the process name is part of workerID.
	replies *replay.Memory[workerID, struct{}, reply]

	mu      sync.Mutex
	refused time.Time // when a refusal was last logged
}

type workerID struct {
	from   string
	worker uint32
}

// reply is the status of a message and the body of its reply.
type reply struct {
	status byte
	body   []byte
}

// Bounds of the memory of other processes. No process sends a message again after its budget, and a
// process that has been silent for an hour is gone. Numbers outlive replies, because somebody may
// have copied a message.
const (
	maxWorkers    = 1 << 16
	maxReplyBytes = 64 << 20
	workerMemory  = time.Hour
	replyMemory   = 2 * maxBudget
	underWay      = 200 * time.Millisecond
)

// NewServer returns a server.
func NewServer(opt ServerOptions) *Server {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	s := &Server{opt: opt, keys: newKeyring(opt.Secret)}
	bytes := min(cmp.Or(opt.ReplyBytes, maxReplyBytes), maxReplyBytes)
	s.replies = replay.New[workerID, struct{}, reply](replay.Options[struct{}]{
		Sequences: maxWorkers, Bytes: int(bytes), Answers: replyMemory, Numbers: workerMemory})
	s.pool.New = func() any { return new(scratch) }
	return s
}

// SetSecrets replaces the secrets. Any of them opens messages, and a reply is sealed with the
// secret of its message. A server that has secrets must keep at least one.
func (s *Server) SetSecrets(secrets [][]byte) { s.keys.set(secrets) }

// Handle executes one message and returns the reply. It may modify the message, and does not keep
// it. An error means that raw is not a message of a node with the same secret, and deserves no
// reply.
func (s *Server) Handle(ctx context.Context, raw []byte) ([]byte, error) {
	var m message
	from, rest, err := readSender(raw)
	if err != nil {
		return nil, s.logRefusal(err)
	}
	bound := slices.Clone(messageTag(raw))
	text, secret, err := s.keys.open("request", from, s.opt.Self, rest, nil)
	if err == nil {
		err = m.parse(text)
	}
	r := reply{status: replyStranger}
	switch {
	case errors.Is(err, errSecret): // or it is meant for an earlier process at this address
		_ = s.logRefusal(err)
	case err != nil:
		return nil, s.logRefusal(err)
	case m.To == s.opt.Self:
		m.From = from
		r = s.replyTo(ctx, &m)
	}
	// The sender has this secret, so it can open the reply.
	key, err := s.keys.cipherFor(secret, "reply", s.opt.Self, from)
	if err != nil {
		return nil, s.logRefusal(err)
	}
	b := make([]byte, 0, len(s.opt.Self)+len(r.body)+messageHead)
	b = s.count.appendNumber(key, appendBytes(b, s.opt.Self))
	start := len(b)
	return seal(key, s.appendReply(b, r), start, bound), nil
}

// messageTag returns the bytes that tie a reply to its message: the last 16, the authentication tag
// of the sealed message, which no other message has.
func messageTag(raw []byte) []byte { return raw[max(0, len(raw)-16):] }

// logRefusal logs refused messages, at most one a minute.
func (s *Server) logRefusal(err error) error {
	s.mu.Lock()
	now := time.Now()
	news := now.Sub(s.refused) > time.Minute
	if news {
		s.refused = now
	}
	s.mu.Unlock()
	if news {
		s.opt.Logger.Warn("refused a message that claims to be from another node",
			"error", err)
	}
	return err
}

// appendReply appends the status, this process's clock, and the body.
func (s *Server) appendReply(b []byte, r reply) []byte {
	b = appendUint(append(b, r.status), uint64(s.clock.Now()/time.Microsecond))
	return append(b, r.body...)
}

// replyTo executes a message, or returns the reply to an earlier copy of it.
func (s *Server) replyTo(ctx context.Context, m *message) reply {
	request, verdict := s.replies.Begin(workerID{m.From, m.Worker}, m.Seq, struct{}{}, time.Now())
	switch verdict {
	case replay.Fresh:
		r := s.execute(ctx, m)
		s.replies.Finish(request, r, len(r.body))
		return r
	case replay.Repeated:
		return s.replyToCopy(request, min(m.Budget, underWay))
	case replay.Full:
		return reply{status: replyBusy}
	}
	return reply{status: replyStale}
}

// replyToCopy returns the reply to a copy of a message, or reports that there is none yet, which is
// also a sign of life.
func (s *Server) replyToCopy(
	request *replay.Request[workerID, struct{}, reply], wait time.Duration,
) reply {
	r, state := s.replies.AwaitAnswer(request, wait)
	switch state {
	case replay.Answered:
		return r
	case replay.UnderWay:
		return reply{status: replyUnderWay}
	}
	return reply{status: replyStale}
}

// execute executes a message, unless its deadline has passed. Errors become part of the reply.
func (s *Server) execute(ctx context.Context, m *message) reply {
	left := m.remaining(s.clock.Now())
	if left <= 0 {
		return reply{status: replyLate}
	}
	by := time.Now().Add(left)
	switch m.Kind {
	case kindRequest:
		_, answer, _ := s.answerRequest(ctx, m.Body, by)
		return reply{replyDone, answer}
	case kindTracedRequest:
		return reply{replyDone, s.answerTraced(ctx, m.From, m.Body, by)}
	}
	x := s.pool.Get().(*scratch)
	defer s.pool.Put(x)
	if err := x.read(m.Body, s.opt.Tracer); err != nil {
		return reply{status: replyStale}
	}
	x.serve(ctx, s, m.From, by)
	x.reply = x.appendResults(x.reply[:0])
	return reply{replyDone, bytes.Clone(x.reply)} // it is kept, with no more memory than it needs
}

// answerRequest answers a request, and also returns the name of its kind and the error.
func (s *Server) answerRequest(ctx context.Context, body []byte,
	by time.Time) (name string, encoded []byte, err error) {
	request, err := readRequest(body)
	if err != nil {
		return "", appendResponse(nil, nil, err), err
	}
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	answer, err := s.opt.Node.Respond(ctx, request)
	kind, _ := node.KindOf(request)
	return kind.Name, appendResponse(nil, answer, err), err
}

// scratch is reusable memory for executing the tasks of a message.
type scratch struct {
	list   taskList
	res    []twotier.Result
	ends   []int // number of tasks up to the end of each call
	groups []group
	traced []tracedTasks
	reply  []byte
}

// group is calls with a common deadline.
type group struct {
	end  int           // number of tasks up to its end
	lead time.Duration // difference between the message's deadline and its own
}

// read parses groups of calls, each of which is a number of tasks. It begins the spans of traced
// calls.
func (x *scratch) read(body []byte, tracer trace.Tracer) error {
	r := reader{b: body}
	x.list.reset()
	clear(x.traced)
	x.ends, x.groups, x.traced = x.ends[:0], x.groups[:0], x.traced[:0]
	for r.err == nil && len(r.b) > 0 {
		lead := time.Duration(min(r.uint(), uint64(maxBudget/time.Microsecond))) * time.Microsecond
		for calls := r.itemCount(); calls > 0 && r.err == nil; calls-- {
			x.readCall(&r, tracer)
		}
		x.groups = append(x.groups, group{len(x.list.ops), lead})
	}
	if r.err != nil {
		return r.err
	}
	x.list.linkChecks()
	if missing := len(x.list.ops) - cap(x.res); missing > 0 {
		x.res = append(x.res[:cap(x.res)], make([]twotier.Result, missing)...)
	}
	x.res = x.res[:len(x.list.ops)]
	for i := range x.res {
		x.res[i].Reset()
	}
	return nil
}

func (x *scratch) readCall(r *reader, tracer trace.Tracer) {
	tasks, from, steps := r.itemCount(), len(x.list.ops), len(x.list.tasks)
	var of *trace.Context
	if tasks == tracedCall && r.err == nil {
		of = r.trace()
		tasks = r.itemCount()
	}
	for i := 0; i < tasks && r.err == nil; i++ {
		x.list.read(r, i == 0)
	}
	if of != nil && r.err == nil {
		of = trace.Begin(tracer, of, spanName+operations, time.Now())
		for i := range x.list.tasks[steps:] {
			x.list.tasks[steps+i].Trace = of
		}
		x.traced = append(x.traced, tracedTasks{indexRange{from, len(x.list.ops)}, of})
	}
	x.ends = append(x.ends, len(x.list.ops))
}

// serve executes the tasks of a process, until by at the latest. Groups have different deadlines
// and don't wait for each other.
func (x *scratch) serve(ctx context.Context, s *Server, from string, by time.Time) {
	var others sync.WaitGroup
	at := 0
	for i, g := range x.groups {
		tasks, until := indexRange{at, g.end}, by.Add(-g.lead)
		at = g.end
		if i == len(x.groups)-1 {
			x.serveUntil(ctx, s, from, tasks, until)
			break
		}
		others.Go(func() { x.serveUntil(ctx, s, from, tasks, until) })
	}
	others.Wait()
}

// serveUntil executes some tasks, unless their time is up. It ends slightly before by: an answer
// that reports unknown outcomes or lateness is worth more than none.
func (x *scratch) serveUntil(ctx context.Context, s *Server, from string, tasks indexRange,
	by time.Time) {
	if calls := x.tracedCalls(tasks); len(calls) > 0 {
		defer endSpans(from, x, calls)
	}
	left := time.Until(by)
	if left <= 0 {
		for i := tasks.from; i < tasks.to; i++ {
			x.res[i].Err = rpc.ErrLate
		}
		return
	}
	ctx, cancel := context.WithDeadline(ctx, by.Add(-left/slack))
	defer cancel()
	x.serveInOrder(ctx, s.opt.Node, tasks)
}

// serveInOrder executes tasks in order: adjacent operations together, and adjacent other tasks
// together.
func (x *scratch) serveInOrder(ctx context.Context, local Local, tasks indexRange) {
	l := &x.list
	other, _ := slices.BinarySearch(l.places, tasks.from)
	for at := tasks.from; at < tasks.to; {
		end := tasks.to
		if other < len(l.places) {
			end = min(end, l.places[other])
		}
		if at < end {
			local.Serve(ctx, l.ops[at:end], x.res[at:end])
			at = end
		}
		first := other
		for ; at < tasks.to && other < len(l.places) && l.places[other] == at; at++ {
			other++
		}
		if other > first {
			local.ServeTasks(ctx, l.tasks[first:other], x.res[at-(other-first):at])
		}
	}
}

// appendResults appends the results of each call, preceded by their length.
func (x *scratch) appendResults(b []byte) []byte {
	at := 0
	for _, end := range x.ends {
		start := len(b)
		b = append(b, make([]byte, lengthBytes)...)
		var t timeDeltas
		for ; at < end; at++ {
			b = appendResult(b, &x.list.ops[at], &x.res[at], &t)
		}
		binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-lengthBytes))
	}
	return b
}
