package peer

import (
	"errors"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/rpc"
)

// errSilent means that a process has left several pings in a row unanswered.
var errSilent = errors.New("it does not say anything")

// worker sends one message at a time.
type worker struct {
	l     *link
	id    uint32
	body  []byte
	raw   []byte
	watch stallWatch
}

func newWorker(l *link, id int) *worker { return &worker{l: l, id: uint32(id)} }

// run sends waiting calls until the link ends or relieved is closed.
func (w *worker) run(queue *batching.Queue[*call], relieved <-chan struct{}) {
	queue.Run(relieved, func(batch []*call) {
		w.watch.begin(w.l, queue)
		w.send(batch)
		w.watch.end()
		w.releaseBuffers()
	})
}

// keptBuffer is the largest buffer that a worker keeps for its next message. Larger ones are
// released: otherwise each of the many workers would hold on to megabytes for good.
const keptBuffer = 128 << 10

// releaseBuffers releases buffers that only a large message needed.
func (w *worker) releaseBuffers() {
	if cap(w.body) > keptBuffer || cap(w.raw) > keptBuffer {
		w.body, w.raw = nil, nil
	}
}

// send sends calls as one message and gives each its part of the reply. It does not send a call
// with less than minBudget left.
func (w *worker) send(batch []*call) {
	now := time.Now()
	live := batch[:0]
	for _, k := range batch {
		if k.by.Sub(now) < minBudget {
			k.Finish(rpc.ErrLate)
			continue
		}
		live = append(live, k)
		w.l.c.tasks.Add(int64(k.tasks))
	}
	if len(live) == 0 {
		return
	}
	sortCalls(live)
	w.body = appendCalls(w.body[:0], live, now)
	reply, err := w.exchange(w.l.ctx, kindTasks, w.body, live[0].by)
	r := reader{b: reply}
	for _, k := range live {
		if err == nil {
			k.reply = r.lengthPrefixed()
			if r.err != nil {
				err = twotier.ErrUnknownOutcome
			}
		}
		k.Finish(err)
	}
}

// sortCalls sorts calls by deadline, latest first. It compares deadlines by the same clock as
// appendCalls, the monotonic one. Two times close to each other can have another order by the wall
// clock, because time.Now reads the two clocks one after the other.
func sortCalls(calls []*call) {
	slices.SortStableFunc(calls, func(a, b *call) int { return b.by.Compare(a.by) })
}

// slack limits how much a call's deadline may be brought forward, to a sixteenth of its remaining
// time, so that calls with similar deadlines can share a context.
const slack = 16

// appendCalls appends calls in groups with similar deadlines. Calls are sorted by deadline, latest
// first. Each group is preceded by the difference between the message's deadline and its own. The
// deadline of a group is the earliest in it: nothing is executed after its caller's deadline.
func appendCalls(b []byte, calls []*call, now time.Time) []byte {
	last := calls[0].by
	for len(calls) > 0 {
		floor := calls[0].by.Add(-calls[0].by.Sub(now) / slack)
		size := 1
		for size < len(calls) && !calls[size].by.Before(floor) {
			size++
		}
		b = appendUint(b, uint64(last.Sub(calls[size-1].by)/time.Microsecond)+1)
		b = appendUint(b, uint64(size))
		for _, k := range calls[:size] {
			if k.trace != nil {
				b = appendTrace(append(b, tracedCall), k.trace)
			}
			b = append(b, k.body...)
		}
		calls = calls[size:]
	}
	return b
}

// stallWatch handles a worker whose message gets no answer for a while. It has the process pinged,
// and starts another worker for the waiting calls, because one slow message need not mean that
// others are slow.
type stallWatch struct {
	timer *time.Timer

	mu    sync.Mutex
	link  *link
	queue *batching.Queue[*call] // nil while nothing is in flight
	// relieved is closed when the other worker is no longer needed; nil if there is none.
	relieved chan struct{}
}

func (w *stallWatch) begin(l *link, queue *batching.Queue[*call]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link, w.queue = l, queue
	if w.timer == nil {
		w.timer = time.AfterFunc(silenceTimeout, w.fire)
		return
	}
	w.timer.Reset(silenceTimeout)
}

func (w *stallWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.queue = nil
	if w.relieved != nil {
		close(w.relieved)
		w.relieved = nil
	}
}

func (w *stallWatch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil || w.relieved != nil {
		return
	}
	w.link.startProbe()
	select {
	case spare := <-w.link.spare:
		w.relieved = make(chan struct{})
		link, queue, relieved := w.link, w.queue, w.relieved
		link.c.done.Go(func() {
			spare.run(queue, relieved)
			link.spare <- spare
		})
	default: // all spare workers are busy
	}
}
