package peer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"twotier/internal/node"
)

// Local is the node that a [Server] answers for; [node.Node] is the real one.
type Local interface {
	// Serve carries out tasks of another node in order and sets Err in each result.
	Serve(ctx context.Context, tasks []node.Task, res []node.Result)
	// Answer answers a question of another node.
	Answer(ctx context.Context, question any) (answer any, err error)
}

// ServerOptions configure a [Server].
type ServerOptions struct {
	// Self is the name of this process. Required.
	Self string
	// Secret is what all nodes share. Default: none, messages are plain.
	Secret []byte
	// Node answers. Required.
	Node Local
	// Logger is told of messages that are refused. Default: none.
	Logger *slog.Logger
}

// Server takes messages of other nodes. Its methods may be called at the same time.
type Server struct {
	opt   ServerOptions
	keys  *keyring
	count counter
	pool  sync.Pool // of *scratch

	mu      sync.Mutex
	lanes   map[laneID]*laneState
	refused time.Time // when a refusal was logged last
	swept   time.Time // when replies were forgotten last
}

type laneID struct {
	from string
	lane uint32
}

// laneState is the last message of a lane and the reply to it.
type laneState struct {
	seq   uint64
	used  time.Time
	done  chan struct{} // closed once there is a reply
	reply []byte        // nil once it is forgotten
}

// Bounds of what is remembered of other processes: nobody sends a message again after its budget, and a process that has not been heard
// of for an hour is gone. The numbers outlive the replies, as somebody may have copied a message.
const (
	maxLanes    = 1 << 16
	laneMemory  = time.Hour
	replyMemory = 2 * maxBudget
	underWay    = 200 * time.Millisecond
)

// scratch is memory for carrying out tasks.
type scratch struct {
	list taskList
	res  []node.Result
	ends []int // how many tasks there are up to the end of each call
}

// NewServer returns a server.
func NewServer(opt ServerOptions) *Server {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opt: opt, keys: newKeyring(opt.Secret), lanes: map[laneID]*laneState{}}
	s.pool.New = func() any { return new(scratch) }
	return s
}

// Handle takes one message and returns the reply. It may change the message, and keeps nothing of it. The error says that it is no
// message of a node with the same secret: that is not worth a reply.
func (s *Server) Handle(ctx context.Context, raw []byte) ([]byte, error) {
	var m message
	from, rest, err := sender(raw)
	if err != nil {
		return nil, s.refuse(err)
	}
	bound := slices.Clone(tag(raw))
	key, err := s.keys.key("request", from, s.opt.Self)
	if err != nil {
		return nil, s.refuse(err)
	}
	text, err := unseal(key, rest, nil)
	if err == nil {
		err = m.parse(text)
	}
	var reply []byte
	switch {
	case errors.Is(err, errSecret): // or it is meant for the process that was here before
		_ = s.refuse(err)
		reply = []byte{replyStranger}
	case err != nil:
		return nil, s.refuse(err)
	default:
		m.From = from
		reply = s.reply(ctx, &m)
	}
	key, err = s.keys.key("reply", s.opt.Self, from)
	if err != nil {
		return nil, s.refuse(err)
	}
	return s.count.seal(key, appendBytes(nil, s.opt.Self), reply, bound), nil
}

// tag is what ties a reply to the message that it answers: what sealing the message left at its end, which no other has.
func tag(raw []byte) []byte { return raw[max(0, len(raw)-16):] }

// refuse logs a message that is refused, once a minute.
func (s *Server) refuse(err error) error {
	s.mu.Lock()
	now := time.Now()
	news := now.Sub(s.refused) > time.Minute
	if news {
		s.refused = now
	}
	s.mu.Unlock()
	if news {
		s.opt.Logger.Warn("a message that pretends to be from another node is refused", "error", err)
	}
	return err
}

// reply carries a message out, or finds out what became of it.
func (s *Server) reply(ctx context.Context, m *message) []byte {
	if m.To != s.opt.Self {
		return []byte{replyStranger}
	}
	state, fresh := s.enter(m)
	switch {
	case state == nil:
		return []byte{replyBusy}
	case fresh:
		ctx, cancel := context.WithTimeout(ctx, m.Budget)
		defer cancel()
		state.reply = s.carryOut(ctx, m)
		close(state.done)
	case state.seq > m.Seq:
		return []byte{replyStale}
	}
	// A copy of a message that is under way, or was answered already. Saying that it is under way is a sign of life.
	timer := time.NewTimer(min(m.Budget, underWay))
	defer timer.Stop()
	select {
	case <-state.done:
		if state.reply == nil {
			return []byte{replyStale}
		}
		return state.reply
	case <-timer.C:
		return []byte{replyBusy}
	}
}

// enter finds the lane of a message. If the message is the first of its number, fresh is true and the caller has to carry it out and
// close done. It returns nil if there are too many lanes.
func (s *Server) enter(m *message) (state *laneState, fresh bool) {
	id := laneID{m.From, m.Lane}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.forgetLocked(now)
	state = s.lanes[id]
	if state != nil && m.Seq <= state.seq {
		state.used = now
		return state, false
	}
	if state == nil && len(s.lanes) >= maxLanes {
		for id, old := range s.lanes {
			if now.Sub(old.used) > laneMemory {
				delete(s.lanes, id)
			}
		}
		if len(s.lanes) >= maxLanes {
			return nil, false
		}
	}
	state = &laneState{seq: m.Seq, used: now, done: make(chan struct{})}
	s.lanes[id] = state
	return state, true
}

// forgetLocked drops the replies that nobody will ask for again: those of processes that are gone would stay for good.
func (s *Server) forgetLocked(now time.Time) {
	if now.Sub(s.swept) < replyMemory {
		return
	}
	s.swept = now
	for _, state := range s.lanes {
		select {
		case <-state.done:
			if now.Sub(state.used) > replyMemory {
				state.reply = nil
			}
		default:
		}
	}
}

// carryOut does what a message says. It never fails: what goes wrong is part of the reply.
func (s *Server) carryOut(ctx context.Context, m *message) []byte {
	if m.Kind == kindQuestion {
		question, err := readQuestion(m.Body)
		if err != nil {
			return appendAnswer([]byte{replyDone}, nil, err)
		}
		answer, err := s.opt.Node.Answer(ctx, question)
		return appendAnswer([]byte{replyDone}, answer, err)
	}
	x := s.pool.Get().(*scratch)
	defer s.pool.Put(x)
	if err := x.read(m.Body); err != nil {
		return []byte{replyStale}
	}
	s.opt.Node.Serve(ctx, x.list.tasks, x.res)
	return x.appendResults(make([]byte, 0, 64+32*len(x.res)))
}

// read reads calls, each a number of tasks.
func (x *scratch) read(body []byte) error {
	r := reader{b: body}
	x.list.reset()
	x.ends = x.ends[:0]
	for range r.count() {
		for range r.count() {
			x.list.read(&r)
		}
		x.ends = append(x.ends, len(x.list.tasks))
	}
	if err := r.end(); err != nil {
		return err
	}
	x.list.link()
	for len(x.res) < len(x.list.tasks) {
		x.res = append(x.res, node.Result{})
	}
	x.res = x.res[:len(x.list.tasks)]
	for i := range x.res {
		x.res[i].Reset()
	}
	return nil
}

// appendResults appends the results of each call with their length in front.
func (x *scratch) appendResults(b []byte) []byte {
	b = append(b, replyDone)
	at := 0
	var call []byte
	for _, end := range x.ends {
		call = call[:0]
		for ; at < end; at++ {
			call = appendResult(call, &x.res[at])
		}
		b = appendBytes(b, call)
	}
	return b
}
