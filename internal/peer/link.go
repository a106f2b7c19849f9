package peer

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"twotier/internal/node"
	"twotier/ring"
)

// Bounds of a link.
const (
	maxWaiting  = 4096 // calls
	maxTasks    = 4096 // in a message
	maxBody     = 2 << 20
	maxMessage  = 512 << 10 // from which on a message takes no further call
	askingLanes = 8
	firstProbe  = 50 * time.Millisecond
	lastProbe   = time.Second
)

// The numbers of lanes: those with tasks that wait for the store, and questions, come after those of Options.Lanes.
const (
	slowLanes   = 1000
	firstAsker  = 2000
	firstShower = 3000
)

// link is what a client has to do with one process.
type link struct {
	c    *Client
	to   ring.Member
	fast chan *call
	slow chan *call
	// Free lanes for questions: of nodes, which decide what becomes of partitions, and of users, of which there may be any number.
	asking, showing chan *lane
	// open is set while the process does not answer: the circuit is open, and nothing but probes goes through.
	open atomic.Bool

	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	probing bool
}

func newLink(c *Client, to *ring.Member) *link {
	l := &link{
		c: c, to: *to, fast: make(chan *call, maxWaiting), slow: make(chan *call, maxWaiting),
		asking: make(chan *lane, askingLanes), showing: make(chan *lane, askingLanes),
	}
	l.ctx, l.stop = context.WithCancel(c.ctx)
	for i := range askingLanes {
		l.asking <- &lane{l: l, id: uint32(firstAsker + i), grace: 1}
		l.showing <- &lane{l: l, id: uint32(firstShower + i), grace: 1}
	}
	for i := range c.opt.Lanes {
		c.done.Go(func() { (&lane{l: l, id: uint32(i)}).run(l.fast) })
		c.done.Go(func() { (&lane{l: l, id: uint32(slowLanes + i), grace: 1}).run(l.slow) })
	}
	return l
}

// lanesFor returns the lanes of a question.
func (l *link) lanesFor(question any) chan *lane {
	switch question.(type) {
	case *node.TopQuestion, *node.SeriesQuestion, *node.StatusQuestion:
		return l.showing
	}
	return l.asking
}

// submit hands a call to the lanes. It reports false if too many wait.
func (l *link) submit(k *call, slow bool) bool {
	queue := l.fast
	if slow {
		queue = l.slow
	}
	select {
	case queue <- k:
	default:
		return false
	}
	if l.open.Load() || l.ctx.Err() != nil {
		l.drain() // nobody may come for it
	}
	return true
}

// drain tells all that wait that the process can't be reached.
func (l *link) drain() {
	for _, queue := range []chan *call{l.fast, l.slow} {
		for more := true; more; {
			select {
			case k := <-queue:
				k.finish(nil, node.ErrUnreachable)
			default:
				more = false
			}
		}
	}
}

// fail notes that the process did not answer, and has it probed.
func (l *link) fail(err error) {
	if !l.open.Swap(true) {
		l.c.opt.Logger.Warn("a node does not answer: doing without it", "member", l.to.ID, "address", l.to.Address, "error", err)
	}
	l.drain()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.probing && l.ctx.Err() == nil {
		l.probing = true
		l.c.done.Go(l.runProbe)
	}
}

// succeed notes that it did.
func (l *link) succeed() {
	if l.open.Load() && l.open.Swap(false) {
		l.c.opt.Logger.Info("a node answers again", "member", l.to.ID)
	}
}

// runProbe asks whether the process is there until it answers.
func (l *link) runProbe() {
	body, _ := appendQuestion(nil, new(node.PingQuestion)) // it is one
	probe := &lane{l: l, id: firstAsker + askingLanes, quiet: true}
	for pause := firstProbe; l.keepsProbing(); pause = min(2*pause, lastProbe) {
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
			return
		}
		_, _ = probe.exchange(l.ctx, kindQuestion, body, time.Now().Add(l.c.opt.AttemptTimeout)) // which tells the link
	}
}

// keepsProbing reports whether the process is still to be probed. If it is not, whoever next finds that it does not answer begins anew:
// both are decided under the lock, or a failure between them would leave the circuit open with nobody to close it.
func (l *link) keepsProbing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probing = l.open.Load()
	return l.probing
}

// lane is one message at a time.
type lane struct {
	l     *link
	id    uint32
	quiet bool // a failure is no news
	grace int  // how many attempts may go by without a sign of life
	body  []byte
	raw   []byte
}

// run sends what waits until the link ends.
func (n *lane) run(queue chan *call) {
	var batch []*call
	for {
		select {
		case <-n.l.ctx.Done():
			n.l.drain()
			return
		case k := <-queue:
			batch = n.gather(append(batch[:0], k), queue)
			n.send(batch)
		}
	}
}

// gather takes whatever else waits, as far as it fits into a message.
func (n *lane) gather(batch []*call, queue chan *call) []*call {
	tasks, size := batch[0].tasks, len(batch[0].body)
	for tasks < maxTasks && size < maxMessage {
		select {
		case k := <-queue:
			batch = append(batch, k)
			tasks += k.tasks
			size += len(k.body)
		default:
			return batch
		}
	}
	return batch
}

// send sends calls as one message and hands each its part of the reply.
func (n *lane) send(batch []*call) {
	now := time.Now()
	by := now
	live := batch[:0]
	for _, k := range batch {
		if !k.by.After(now) {
			k.finish(nil, node.ErrUnreachable) // it waited too long, and nothing was sent
			continue
		}
		live = append(live, k)
		if k.by.After(by) {
			by = k.by
		}
		n.l.c.tasks.Add(int64(k.tasks))
	}
	if len(live) == 0 {
		return
	}
	n.body = binary.AppendUvarint(n.body[:0], uint64(len(live)))
	for _, k := range live {
		n.body = append(n.body, k.body...)
	}
	reply, err := n.exchange(n.l.ctx, kindTasks, n.body, by)
	r := reader{b: reply}
	for _, k := range live {
		if err == nil {
			part := r.bytes()
			if err = r.err; err == nil {
				k.finish(part, nil)
				continue
			}
			err = node.ErrUnknownOutcome
		}
		k.finish(nil, err)
	}
}
