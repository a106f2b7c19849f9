package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/ring"
)

// ClientOptions configure a [Client]. The zero value of a field means its default.
type ClientOptions struct {
	// Self is the name of this process. Required.
	Self string
	// Secret is shared by all nodes. Default: none, messages are plain.
	Secret []byte
	// Transport carries the messages. Required.
	Transport Transport
	// Timeout bounds calls without a deadline. Default: 2 s.
	Timeout time.Duration
	// Logger receives changes of state. Default: none.
	Logger *slog.Logger
}

// Client implements node.Peers. Create it with [NewClient], stop it with Close.
type Client struct {
	opt   ClientOptions
	keys  *keyring
	count sealCounter
	clock elapsed.Clock
	seq   atomic.Uint64 // of the last message of any worker, so it grows with each worker
	calls sync.Pool     // of *call
	waits sync.Pool     // of *wait
	ctx   context.Context
	stop  context.CancelFunc
	done  sync.WaitGroup

	messages, resent, failed, tasks atomic.Int64

	mu     sync.Mutex
	links  map[string]*link // by name of the process
	closed bool
}

// NewClient checks the options. The client starts its goroutines when it is first used.
func NewClient(opt ClientOptions) (*Client, error) {
	if opt.Self == "" || opt.Transport == nil {
		return nil, errors.New("peer: ClientOptions needs Self and Transport")
	}
	opt.Timeout = cmp.Or(opt.Timeout, 2*time.Second)
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{opt: opt, keys: newKeyring(opt.Secret), links: map[string]*link{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.calls.New = func() any { return new(call) }
	c.waits.New = func() any { return &waiter{done: make(chan struct{}, 1)} }
	return c, nil
}

// SetSecrets replaces the secrets: the first one seals messages and passes, any of them opens
// replies.
func (c *Client) SetSecrets(secrets [][]byte) { c.keys.set(secrets) }

// Close ends all calls in flight, whose outcomes are then unknown. It may be called twice.
func (c *Client) Close(context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.done.Wait()
	return nil
}

// Stats implements node.Peers.
func (c *Client) Stats() cluster.PeerStats {
	s := cluster.PeerStats{
		MessagesTotal: c.messages.Load(), ResentTotal: c.resent.Load(),
		FailedTotal: c.failed.Load(), TasksTotal: c.tasks.Load(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, l := range c.links {
		if l.open.Load() {
			s.Silent = append(s.Silent, name)
		}
	}
	return s
}

// link returns the link to a member.
func (c *Client) link(to *ring.Member) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("%w: this node is closing", twotier.ErrClosed)
	}
	l := c.links[to.Name]
	if l == nil {
		l = newLink(c, to)
		c.links[to.Name] = l
	}
	return l, nil
}

// RetainLinks drops the links to members that are no longer in the table.
func (c *Client) RetainLinks(t *ring.Table) {
	c.mu.Lock()
	var gone []*link
	for name, l := range c.links {
		if t.Find(name) < 0 {
			gone = append(gone, l)
			delete(c.links, name)
		}
	}
	c.mu.Unlock()
	for _, l := range gone {
		l.stop()
	}
}

// Ask implements node.Peers.
func (c *Client) Ask(ctx context.Context, to *ring.Member, request, response any) error {
	body, err := appendRequest(nil, request)
	if err != nil {
		return err
	}
	l, err := c.link(to)
	if err != nil {
		return err
	}
	kind, _ := node.KindOf(request)
	if err := l.ask(ctx, &kind, body, response); err != nil {
		return fmt.Errorf("node %s: %s: %w", to.ID, kind.Name, err)
	}
	return nil
}

// ask sends a request and reads the response. Requests from users fail at once while the node can't
// be reached; requests between nodes go through, because they show whether it is back.
func (l *link) ask(ctx context.Context, what *node.RequestKind, body []byte, response any) error {
	free := l.asking
	if what.FromUsers {
		if free = l.showing; l.open.Load() {
			return rpc.ErrUnreachable
		}
		silent := time.AfterFunc(silenceTimeout, l.startProbe)
		defer silent.Stop()
	}
	var worker *worker
	select {
	case worker = <-free:
		defer func() { free <- worker }()
	case <-ctx.Done():
		return rpc.ErrLate
	}
	kind, by := kindRequest, l.c.deadline(ctx)
	if of := trace.From(ctx); of != nil {
		kind, body = kindTracedRequest, append(appendTrace(nil, of), body...)
	}
	reply, err := worker.exchange(ctx, kind, body, by)
	if err != nil {
		return err
	}
	return readResponse(reply, response)
}

// Transport sends a message to an address, exactly once, and returns the reply in newly allocated
// memory. It does not keep the message. An error wraps rpc.ErrUnreachable if the message certainly
// did not reach the other process, because nothing listens there or the connection broke;
// rpc.ErrLate if there was no connection in time; and rpc.ErrRefused if the receiver answered that
// it does not accept the message.
type Transport interface {
	Send(ctx context.Context, address string, message []byte) (reply []byte, err error)
}
