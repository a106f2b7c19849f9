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
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/retry"
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
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
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

// Bounds of a link.
const (
	maxWaiting    = 4096 // calls
	maxTasks      = 4096 // in a message
	maxBody       = 2 << 20
	maxMessage    = 512 << 10 // a message of that size takes no further call
	askingWorkers = 8
	spareWorkers  = 16
	firstProbe    = 50 * time.Millisecond
	lastProbe     = time.Second
	// maxMissed is the number of consecutive pings without a sign of life after which the process
	// counts as unreachable.
	maxMissed = 3
)

// class is a class of tasks, with a separate queue and separate workers.
type class uint8

// The classes of tasks.
const (
	quick class = iota
	// storeBound tasks wait for the store.
	storeBound
	// nodeBound tasks wait for the answers to tasks of any other class. Because they have separate
	// workers, the others never wait for a node that waits for a worker, so that no circle of nodes
	// can wait for each other.
	nodeBound
	// resets wait for the store, and for requests, but for no other task. They hold up neither
	// storeBound nor nodeBound tasks, and are not held up by them.
	resets
	classes
)

// classWorkers is the number of messages of each class that can be in flight to a node.
const classWorkers = 2

// firstWorkers are the numbers of the first worker of each class.
var firstWorkers = [classes]int{quick: 0, storeBound: 1000, nodeBound: 1500, resets: 1750}

// The numbers of the first workers for requests, and of the spare ones.
const (
	firstAsker  = 2000
	firstShower = 3000
	firstSpare  = 4000
)

// link is a client's connection state for one process.
type link struct {
	c    *Client
	to   ring.Member
	ping []byte // an encoded ping
	clockOffset
	queues [classes]*batching.Queue[*call]
	// Free workers for requests of nodes (asking) and of users (showing), see node.RequestKind.
	asking, showing chan *worker
	// Free workers for calls whose regular workers are busy with slow messages.
	spare chan *worker
	// open is set while the process can't be reached: the circuit is open, and only probes go
	// through.
	open atomic.Bool
	// signs counts the replies from the process.
	signs atomic.Uint64

	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	probing bool
}

func newLink(c *Client, to *ring.Member) *link {
	l := &link{
		c: c, to: *to, clockOffset: clockOffset{own: &c.clock},
		asking: make(chan *worker, askingWorkers), showing: make(chan *worker, askingWorkers),
		spare: make(chan *worker, spareWorkers),
	}
	opt := batching.Options{Waiting: maxWaiting, Ops: maxTasks, Bytes: maxMessage,
		Refused: l.refusal}
	for of := range l.queues {
		l.queues[of] = batching.New[*call](opt)
	}
	l.ping, _ = appendRequest(nil, new(node.PingRequest)) // a ping is always a request
	l.ctx, l.stop = context.WithCancel(c.ctx)
	context.AfterFunc(l.ctx, l.stopWorkers)
	for i := range askingWorkers {
		l.asking <- newWorker(l, firstAsker+i)
		l.showing <- newWorker(l, firstShower+i)
	}
	for i := range spareWorkers {
		l.spare <- newWorker(l, firstSpare+i)
	}
	for of, first := range firstWorkers {
		for i := range classWorkers {
			c.done.Go(func() { newWorker(l, first+i).run(l.queues[of], nil) })
		}
	}
	return l
}

// refusal returns why no call may wait: no worker would send it.
func (l *link) refusal() error {
	if l.open.Load() || l.ctx.Err() != nil {
		return rpc.ErrUnreachable
	}
	return nil
}

// submit queues a call for a worker.
func (l *link) submit(k *call, queue *batching.Queue[*call]) error {
	err := queue.Put(k)
	if errors.Is(err, batching.ErrFull) {
		return fmt.Errorf("%w: too many operations wait for it", twotier.ErrOverload)
	}
	return err
}

// failWaiting fails all waiting calls, because the process can't be reached.
func (l *link) failWaiting() {
	for _, queue := range l.queues {
		queue.FailWaiting(rpc.ErrUnreachable)
	}
}

func (l *link) stopWorkers() {
	l.failWaiting()
	for _, queue := range l.queues {
		queue.Close(rpc.ErrUnreachable)
	}
}

// recordReply records a sign of life, and the process's clock in the reply.
func (l *link) recordReply(clock time.Duration) {
	l.clockOffset.recordReply(clock)
	l.signs.Add(1)
	if l.open.Load() && l.open.Swap(false) {
		l.c.opt.Logger.Info("a node answers again", "member", l.to.ID)
	}
}

// markUnreachable marks the process as unreachable and starts probing it.
func (l *link) markUnreachable(err error) {
	if l.ctx.Err() != nil {
		return
	}
	if !l.open.Swap(true) {
		l.c.opt.Logger.Warn("a node can't be reached: falling back", "member", l.to.ID,
			"address", l.to.PeerAddress(), "error", err)
	}
	l.failWaiting()
	l.startProbe()
}

// startProbe starts to ping the process, because a message to it has been unanswered for a while or
// could not be sent.
func (l *link) startProbe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.probing && l.ctx.Err() == nil {
		l.probing = true
		l.c.done.Go(l.runProbe)
	}
}

// runProbe pings the process until any reply comes from it, even one from another worker.
func (l *link) runProbe() {
	probe := newWorker(l, firstAsker+askingWorkers)
	pause := firstProbe
	for missed := 0; ; missed++ {
		if missed == maxMissed {
			l.markUnreachable(errSilent)
		}
		if l.open.Load() {
			if !retry.Pause(l.ctx, pause) {
				return
			}
			pause = min(2*pause, lastProbe)
		}
		before := l.signs.Load()
		// The worker reports the outcome to the link.
		_, _ = probe.sendUntilAnswered(l.ctx, kindRequest, l.ping,
			time.Now().Add(silenceTimeout))
		if !l.continueProbing(l.signs.Load() == before) {
			return
		}
	}
}

// continueProbing reports whether to go on probing. If not, the next call of probe starts anew.
// Both are decided under the lock: otherwise, a failure between the last ping and the end of
// runProbe would start no new probe, and the circuit would stay open for good.
func (l *link) continueProbing(silent bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probing = (silent || l.open.Load()) && l.ctx.Err() == nil
	return l.probing
}
