package peer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
)

// errSilent says that a process has left several questions unanswered.
var errSilent = errors.New("it does not say anything")

// lane is one message at a time.
type lane struct {
	l     *link
	id    uint32
	body  []byte
	raw   []byte
	watch watch
}

func newLane(l *link, id int) *lane { return &lane{l: l, id: uint32(id)} }

// run sends what waits until the link ends, or relieved is closed.
func (n *lane) run(queue *batching.Queue[*call], relieved <-chan struct{}) {
	queue.Run(relieved, func(batch []*call) {
		n.watch.begin(n.l, queue)
		n.send(batch)
		n.watch.end()
	})
}

// send sends calls as one message and hands each its part of the reply. One whose time is up, or
// nearly, is not sent.
func (n *lane) send(batch []*call) {
	now := time.Now()
	live := batch[:0]
	for _, k := range batch {
		if k.by.Sub(now) < minBudget {
			k.Finish(rpc.ErrLate)
			continue
		}
		live = append(live, k)
		n.l.c.tasks.Add(int64(k.tasks))
	}
	if len(live) == 0 {
		return
	}
	slices.SortStableFunc(live, func(a, b *call) int {
		return -cmp.Compare(a.by.UnixNano(), b.by.UnixNano())
	})
	n.body = appendCalls(n.body[:0], live, now)
	reply, err := n.exchange(n.l.ctx, kindTasks, n.body, live[0].by)
	r := reader{b: reply}
	for _, k := range live {
		if err == nil {
			k.reply = r.bytes()
			if r.err != nil {
				err = node.ErrUnknownOutcome
			}
		}
		k.Finish(err)
	}
}

// slack is the part of the time that a call has by which it may be cut short, so that it can share
// a context with others.
const slack = 16

// appendCalls appends calls, of which the first has the most time, in groups with about the same
// deadline, each with how much earlier that is than the deadline of the message: nothing is carried
// out after the deadline of who asked for it.
func appendCalls(b []byte, calls []*call, now time.Time) []byte {
	last := calls[0].by
	for len(calls) > 0 {
		floor := calls[0].by.Add(-calls[0].by.Sub(now) / slack)
		size := 1
		for size < len(calls) && !calls[size].by.Before(floor) {
			size++
		}
		b = binary.AppendUvarint(b, uint64(last.Sub(calls[size-1].by)/time.Microsecond)+1)
		b = binary.AppendUvarint(b, uint64(size))
		for _, k := range calls[:size] {
			b = append(b, k.body...)
		}
		calls = calls[size:]
	}
	return b
}

// watch looks after a lane whose message gets no answer for a while: the process is asked whether
// it is there, and another lane takes what else waits, as one message that takes long says nothing
// of others.
type watch struct {
	timer *time.Timer

	mu    sync.Mutex
	link  *link
	queue *batching.Queue[*call] // nil while nothing is under way
	// relieved is closed when the other lane is not needed any more; nil if there is none.
	relieved chan struct{}
}

func (w *watch) begin(l *link, queue *batching.Queue[*call]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link, w.queue = l, queue
	if w.timer == nil {
		w.timer = time.AfterFunc(l.c.silence(), w.fire)
		return
	}
	w.timer.Reset(l.c.silence())
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.queue = nil
	if w.relieved != nil {
		close(w.relieved)
		w.relieved = nil
	}
}

func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil || w.relieved != nil {
		return
	}
	w.link.probe()
	select {
	case spare := <-w.link.spare:
		w.relieved = make(chan struct{})
		link, queue, relieved := w.link, w.queue, w.relieved
		link.c.done.Go(func() {
			spare.run(queue, relieved)
			link.spare <- spare
		})
	default: // as many as there may be take long
	}
}
