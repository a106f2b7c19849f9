package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
)

// Local is the node that a [Server] answers for; [node.Node] is the real one.
type Local interface {
	// Serve carries out tasks of another node in order and sets Err in each result.
	Serve(ctx context.Context, tasks []rpc.Task, res []node.Result)
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
	clock elapsed.Clock
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
	seq  uint64
	used time.Time
	done chan struct{} // closed once there is a reply

	status    byte
	reply     []byte
	forgotten bool
}

// Bounds of what is remembered of other processes: nobody sends a message again after its budget,
// and a process that has not been heard of for an hour is gone. The numbers outlive the replies, as
// somebody may have copied a message.
const (
	maxLanes    = 1 << 16
	laneMemory  = time.Hour
	replyMemory = 2 * maxBudget
	underWay    = 200 * time.Millisecond
)

// NewServer returns a server.
func NewServer(opt ServerOptions) *Server {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opt: opt, keys: newKeyring(opt.Secret), lanes: map[laneID]*laneState{}}
	s.pool.New = func() any { return new(scratch) }
	return s
}

// SetSecrets replaces the secrets: each of them opens messages, and a reply is sealed as what it
// answers was. It takes none back from a cluster that has some.
func (s *Server) SetSecrets(secrets [][]byte) { s.keys.set(secrets) }

// Handle takes one message and returns the reply. It may change the message, and keeps nothing of
// it. The error says that it is no message of a node with the same secret: that is not worth a
// reply.
func (s *Server) Handle(ctx context.Context, raw []byte) ([]byte, error) {
	var m message
	from, rest, err := sender(raw)
	if err != nil {
		return nil, s.refuse(err)
	}
	bound := slices.Clone(tag(raw))
	text, secret, err := s.keys.open("request", from, s.opt.Self, rest, nil)
	if err == nil {
		err = m.parse(text)
	}
	status, reply := replyStranger, []byte(nil)
	switch {
	case errors.Is(err, errSecret): // or it is meant for the process that was here before
		_ = s.refuse(err)
	case err != nil:
		return nil, s.refuse(err)
	case m.To == s.opt.Self:
		m.From = from
		status, reply = s.reply(ctx, &m)
	}
	// Whoever sealed with this secret can open what is sealed with it.
	key, err := s.keys.key(secret, "reply", s.opt.Self, from)
	if err != nil {
		return nil, s.refuse(err)
	}
	return s.count.seal(key, appendBytes(nil, s.opt.Self), s.signed(status, reply), bound), nil
}

// tag is what ties a reply to the message that it answers: what sealing the message left at its
// end, which no other has.
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
		s.opt.Logger.Warn("a message that pretends to be from another node is refused",
			"error", err)
	}
	return err
}

// signed puts in front of a reply what it is, and what the clock of this process shows.
func (s *Server) signed(status byte, reply []byte) []byte {
	text := append(make([]byte, 0, len(reply)+11), status)
	return append(binary.AppendUvarint(text, uint64(s.clock.Now()/time.Microsecond)), reply...)
}

// reply carries a message out, or finds out what became of it.
func (s *Server) reply(ctx context.Context, m *message) (status byte, reply []byte) {
	state, fresh := s.enter(m)
	switch {
	case state == nil:
		return replyBusy, nil
	case fresh:
		state.status, state.reply = s.inTime(ctx, m)
		close(state.done)
		return state.status, state.reply
	case state.seq > m.Seq:
		return replyStale, nil
	}
	return state.await(min(m.Budget, underWay))
}

// await returns the reply to a copy of a message, or that there is none yet, which is a sign of
// life.
func (l *laneState) await(d time.Duration) (status byte, reply []byte) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
		select { // both may be true: an answer that is there is told
		case <-l.done:
		default:
			return replyUnderWay, nil
		}
	}
	if l.forgotten {
		return replyStale, nil
	}
	return l.status, l.reply
}

// inTime carries a message out, unless its time is up.
func (s *Server) inTime(ctx context.Context, m *message) (status byte, reply []byte) {
	left := m.remaining(s.clock.Now())
	if left <= 0 {
		return replyLate, nil
	}
	return s.carryOut(ctx, m, time.Now().Add(left))
}

// enter finds the lane of a message. If the message is the first of its number, fresh is true and
// the caller has to carry it out and close done. It returns nil if there are too many lanes.
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

// forgetLocked drops the replies that nobody will ask for again: those of processes that are gone
// would stay for good.
func (s *Server) forgetLocked(now time.Time) {
	if now.Sub(s.swept) < replyMemory {
		return
	}
	s.swept = now
	for _, state := range s.lanes {
		select {
		case <-state.done:
			if now.Sub(state.used) > replyMemory {
				state.reply, state.forgotten = nil, true
			}
		default:
		}
	}
}

// carryOut does what a message says, until by. What goes wrong is part of the reply.
func (s *Server) carryOut(ctx context.Context, m *message,
	by time.Time) (status byte, reply []byte) {
	if m.Kind == kindQuestion {
		question, err := readQuestion(m.Body)
		if err != nil {
			return replyDone, appendAnswer(nil, nil, err)
		}
		ctx, cancel := context.WithDeadline(ctx, by)
		defer cancel()
		answer, err := s.opt.Node.Answer(ctx, question)
		return replyDone, appendAnswer(nil, answer, err)
	}
	x := s.pool.Get().(*scratch)
	defer s.pool.Put(x)
	if err := x.read(m.Body); err != nil {
		return replyStale, nil
	}
	x.serve(ctx, s.opt.Node, by)
	return replyDone, x.appendResults(make([]byte, 0, 64+32*len(x.res)))
}
