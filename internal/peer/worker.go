package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/retry"
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
		if cap(w.body) > keptBuffer || cap(w.raw) > keptBuffer {
			w.body, w.raw = nil, nil
		}
	})
}

// keptBuffer is the largest buffer that a worker keeps for its next message. Larger ones are
// released: otherwise each of the many workers would hold on to megabytes for good.
const keptBuffer = 128 << 10

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

const (
	// attemptTimeout is how long to wait for an answer before a message is sent again.
	attemptTimeout = 500 * time.Millisecond
	// silenceTimeout is how long a node may be silent before it is pinged, and how long a ping may
	// take. See also maxMissed.
	silenceTimeout = attemptTimeout / 2
	// Pauses between attempts.
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// exchange sends a message until it is answered or its time is up.
func (w *worker) exchange(
	ctx context.Context, kind byte, body []byte, by time.Time,
) ([]byte, error) {
	if err := w.pingFirst(ctx, by); err != nil {
		return nil, err
	}
	return w.sendUntilAnswered(ctx, kind, body, by)
}

// pingFirst makes the first message to a process a ping, which reads its clock. Later messages can
// then carry a deadline by that clock, after which they are not executed, however late they arrive.
func (w *worker) pingFirst(ctx context.Context, by time.Time) error {
	if w.l.offsetKnown() {
		return nil
	}
	_, err := w.sendUntilAnswered(ctx, kindRequest, w.l.ping, by)
	switch {
	case errors.Is(err, twotier.ErrUnknownOutcome):
		return fmt.Errorf("%w: it did not report its time", rpc.ErrLate)
	case err != nil:
		return err
	}
	return nil
}

// sendUntilAnswered sends a message until it is answered or its time is up. Each attempt that gets
// an answer is a sign of life.
func (w *worker) sendUntilAnswered(
	ctx context.Context, kind byte, body []byte, by time.Time,
) ([]byte, error) {
	m := message{From: w.l.c.opt.Self, To: w.l.to.Name, Worker: w.id, Seq: w.l.c.seq.Add(1),
		Kind: kind, Body: body}
	sent := false // a copy may have arrived
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if m.Budget = time.Until(by); m.Budget <= minBudget || ctx.Err() != nil {
			return nil, w.recordUnanswered(sent, rpc.ErrLate, nil)
		}
		m.Until = w.l.deadlineIn(m.Budget)
		status, reply, err := w.attempt(ctx, &m)
		switch {
		case err == nil && status == replyDone:
			return reply, nil
		case err == nil && status == replyLate:
			return nil, w.recordUnanswered(false, rpc.ErrLate, nil)
		case err == nil && status == replyStranger:
			w.l.markUnreachable(errGone)
			return nil, w.recordUnanswered(sent, rpc.ErrUnreachable, errGone)
		case err == nil && status == replyStale:
			return nil, w.recordUnanswered(sent, rpc.ErrRefused, errStale)
		case errors.Is(err, rpc.ErrRefused):
			return nil, w.recordUnanswered(sent, rpc.ErrRefused, err)
		case errors.Is(err, rpc.ErrUnreachable):
			w.l.markUnreachable(err)
			if !sent {
				return nil, w.recordUnanswered(false, rpc.ErrUnreachable, err)
			}
		case errors.Is(err, rpc.ErrLate), err == nil && status == replyBusy:
			// This copy was not executed.
		default:
			sent = true
		}
		retry.Pause(ctx, min(pause, time.Until(by)-minBudget))
		w.l.c.resent.Add(1)
	}
}

// The reasons why a process does not accept a message.
var (
	errGone  = errors.New("another process answers at its address")
	errStale = errors.New("it considers the message an old copy")
)

// recordUnanswered counts an unanswered message, and returns its error. If any copy may have
// arrived, the outcome is unknown, whatever the error of the last attempt. Otherwise nothing was
// done, and kind is the reason: rpc.ErrUnreachable, rpc.ErrRefused or rpc.ErrLate.
func (w *worker) recordUnanswered(sent bool, kind, why error) error {
	w.l.c.failed.Add(1)
	if sent {
		kind = twotier.ErrUnknownOutcome
	}
	if why == nil {
		return kind
	}
	return fmt.Errorf("%w: %v", kind, why) // only the text: why may wrap another of the kinds
}

// attempt sends a message once and reads the reply.
func (w *worker) attempt(ctx context.Context, m *message) (status byte, reply []byte, err error) {
	c := w.l.c
	key, err := c.keys.cipherFor(sealingSecret(c.keys.list()), "request", m.From, m.To)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", rpc.ErrRefused, err)
	}
	w.raw = m.append(w.raw[:0], key, &c.count)
	bound := [16]byte{}
	size := copy(bound[:], messageTag(w.raw))
	c.messages.Add(1)
	ctx, cancel := context.WithTimeout(ctx, min(m.Budget, attemptTimeout))
	defer cancel()
	raw, err := c.opt.Transport.Send(ctx, w.l.to.PeerAddress(), w.raw)
	if err != nil {
		return 0, nil, err
	}
	status, clock, reply, err := c.openReply(m, raw, bound[:size])
	if err == nil && status != replyStranger {
		w.l.recordReply(clock)
	}
	return status, reply, err
}

func (c *Client) openReply(m *message, raw,
	bound []byte) (status byte, clock time.Duration, reply []byte, err error) {
	r := reader{b: raw}
	from := r.processName()
	if r.err != nil {
		return 0, 0, nil, r.err
	}
	text, _, err := c.keys.open("reply", from, m.From, r.b, bound)
	if err != nil {
		return 0, 0, nil, err
	}
	r = reader{b: text}
	status, clock = r.byte(), time.Duration(min(r.uint(), maxUntil))*time.Microsecond
	if from != m.To {
		status = replyStranger
	}
	return status, clock, r.b, r.err
}
