package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

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

// stopWorkers stops the workers.
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
			if probe.pause(l.ctx, pause); l.ctx.Err() != nil {
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
