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
	"twotier.dev/twotier/internal/replay"
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
	// replies are those to the last message of each lane. Nobody but its process can go on with
	// one: the name of that is part of its own.
	replies *replay.Memory[laneID, struct{}, reply]

	mu      sync.Mutex
	refused time.Time // when a refusal was logged last
}

type laneID struct {
	from string
	lane uint32
}

// reply is what became of a message, and what is said of it.
type reply struct {
	status byte
	body   []byte
}

// Bounds of what is remembered of other processes: nobody sends a message again after its budget,
// and a process that has not been heard of for an hour is gone. The numbers outlive the replies, as
// somebody may have copied a message.
const (
	maxLanes      = 1 << 16
	maxReplyBytes = 64 << 20
	laneMemory    = time.Hour
	replyMemory   = 2 * maxBudget
	underWay      = 200 * time.Millisecond
)

// NewServer returns a server.
func NewServer(opt ServerOptions) *Server {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opt: opt, keys: newKeyring(opt.Secret)}
	s.replies = replay.New[laneID, struct{}, reply](replay.Options[struct{}]{Sequences: maxLanes,
		Bytes: maxReplyBytes, Answers: replyMemory, Numbers: laneMemory})
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
	r := reply{status: replyStranger}
	switch {
	case errors.Is(err, errSecret): // or it is meant for the process that was here before
		_ = s.refuse(err)
	case err != nil:
		return nil, s.refuse(err)
	case m.To == s.opt.Self:
		m.From = from
		r = s.reply(ctx, &m)
	}
	// Whoever sealed with this secret can open what is sealed with it.
	key, err := s.keys.key(secret, "reply", s.opt.Self, from)
	if err != nil {
		return nil, s.refuse(err)
	}
	return s.count.seal(key, appendBytes(nil, s.opt.Self), s.signed(r), bound), nil
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
		s.opt.Logger.Warn("refused a message that claims to be from another node",
			"error", err)
	}
	return err
}

// signed puts in front of a reply what it is, and what the clock of this process shows.
func (s *Server) signed(r reply) []byte {
	text := append(make([]byte, 0, len(r.body)+11), r.status)
	return append(binary.AppendUvarint(text, uint64(s.clock.Now()/time.Microsecond)), r.body...)
}

// reply carries a message out, or finds out what became of it.
func (s *Server) reply(ctx context.Context, m *message) reply {
	request, verdict := s.replies.Enter(laneID{m.From, m.Lane}, m.Seq, struct{}{}, time.Now())
	switch verdict {
	case replay.Fresh:
		r := s.inTime(ctx, m)
		s.replies.Finish(request, r, len(r.body))
		return r
	case replay.Repeated:
		return s.again(request, min(m.Budget, underWay))
	case replay.Full:
		return reply{status: replyBusy}
	}
	return reply{status: replyStale}
}

// again returns the reply to a copy of a message, or that there is none yet, which is a sign of
// life.
func (s *Server) again(request *replay.Request[laneID, struct{}, reply], wait time.Duration) reply {
	r, state := s.replies.Answer(request, wait)
	switch state {
	case replay.Answered:
		return r
	case replay.UnderWay:
		return reply{status: replyUnderWay}
	}
	return reply{status: replyStale}
}

// inTime carries a message out, unless its time is up.
func (s *Server) inTime(ctx context.Context, m *message) reply {
	left := m.remaining(s.clock.Now())
	if left <= 0 {
		return reply{status: replyLate}
	}
	return s.carryOut(ctx, m, time.Now().Add(left))
}

// carryOut does what a message says, until by. What goes wrong is part of the reply.
func (s *Server) carryOut(ctx context.Context, m *message, by time.Time) reply {
	if m.Kind == kindQuestion {
		return reply{replyDone, s.answer(ctx, m.Body, by)}
	}
	x := s.pool.Get().(*scratch)
	defer s.pool.Put(x)
	if err := x.read(m.Body); err != nil {
		return reply{status: replyStale}
	}
	x.serve(ctx, s.opt.Node, by)
	return reply{replyDone, x.appendResults(make([]byte, 0, 64+32*len(x.res)))}
}

// answer has a question answered.
func (s *Server) answer(ctx context.Context, body []byte, by time.Time) []byte {
	question, err := readQuestion(body)
	if err != nil {
		return appendAnswer(nil, nil, err)
	}
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	answer, err := s.opt.Node.Answer(ctx, question)
	return appendAnswer(nil, answer, err)
}
