package mirror

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/listener"
)

// Twotier is the cluster to compare with. A *[client.Client] implements it.
type Twotier interface {
	// Batch executes operations, those on one key in order, see [client.Client.Batch].
	Batch(ctx context.Context, ops []client.Op) ([]client.Result, error)
}

// Options configure a [Mirror]. The zero value of a field means its default.
type Options struct {
	// Twotier makes the decisions to compare with. Required.
	Twotier Twotier
	// Default has the namespace, the limits and the rules of checks that name none. Default: the
	// default rules of the namespace.
	Default client.Check
	// CountDenied counts events that the old limiter refused: it counts them, too.
	CountDenied bool
	// MaxWaiting is how many verdicts may wait before more are dropped. Default: 65,536. However
	// many there are, they occupy at most 64 MiB.
	MaxWaiting int
	// Now returns the time. Default: time.Now.
	Now func() time.Time
}

// Mirror compares verdicts of the old limiter with twotier. Make one with [New], start it with
// Open, stop it with Close.
type Mirror struct {
	opt     Options
	queue   queue
	closing chan struct{}
	close   sync.Once
	cancel  context.CancelFunc
	done    sync.WaitGroup

	bodies   listener.Account // of requests that arrive, in bytes
	decoding sync.Mutex       // held while a body is decoded

	mu   sync.Mutex
	book *book
}

// New checks the options. It asks nothing.
func New(opt Options) (*Mirror, error) {
	if opt.Twotier == nil || opt.MaxWaiting < 0 {
		return nil, errors.New("mirror: want a Twotier, and a MaxWaiting of at least 0")
	}
	opt.MaxWaiting = cmp.Or(opt.MaxWaiting, defaultWaiting)
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Mirror{opt: opt, queue: queue{max: opt.MaxWaiting}, closing: make(chan struct{}),
		bodies: listener.Account{Most: maxBodies, Each: maxBodies / 2},
		cancel: func() {}, book: newBook(opt.Now().UnixMilli(), opt.CountDenied)}, nil
}

// Open starts to compare verdicts, until Close.
func (m *Mirror) Open(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(ctx)
	m.done.Go(func() { m.runBatches(ctx) })
}

// Close compares the verdicts that wait, but no longer than until ctx ends, and drops the rest. It
// may be called twice.
func (m *Mirror) Close(ctx context.Context) {
	m.close.Do(func() { close(m.closing) })
	stop := context.AfterFunc(ctx, m.cancel)
	m.done.Wait()
	stop()
	m.cancel()
	for batch := m.next(); len(batch) > 0; batch = m.next() {
		m.Drop(batch)
	}
}

// next takes the next verdicts without waiting for others.
func (m *Mirror) next() []Verdict { return m.queue.take(time.Now()) }

// Accept queues verdicts and returns how many were dropped because too many wait. It never waits.
func (m *Mirror) Accept(list []Verdict) (dropped int) {
	now := time.Now()
	for i := range list {
		if !m.queue.add(&list[i], now) {
			m.Drop(list[i : i+1])
			dropped++
		}
	}
	return dropped
}

// Drop accounts for verdicts that are not compared.
func (m *Mirror) Drop(list []Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.counted.Dropped += uint64(len(list))
	for i := range list {
		m.book.lastDrop = max(m.book.lastDrop, list[i].At)
	}
}

// RecordInvalid accounts for verdicts that could not be read.
func (m *Mirror) RecordInvalid(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.counted.Invalid++
	m.book.counted.LastInvalid = clipReason(err)
}

// maxReason is the length of the longest text of an error that a mirror keeps, in bytes.
const maxReason = 1 << 10

// clipReason returns the text of an error, without its end if it is long: some errors quote their
// input.
func clipReason(err error) string {
	text := err.Error()
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	return text
}

// Report returns the result so far.
func (m *Mirror) Report() *Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.book.report(m.opt.Now().UnixMilli())
	r.Waiting = m.queue.len()
	return r
}

// runBatches compares verdicts soon after they have arrived, and at once when the mirror closes.
func (m *Mirror) runBatches(ctx context.Context) {
	tick := time.NewTicker(settling / 4)
	defer tick.Stop()
	for ctx.Err() == nil {
		if batch := m.queue.take(time.Now().Add(-settling)); len(batch) > 0 {
			m.compare(ctx, batch)
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-m.closing:
			batch := m.next()
			if len(batch) == 0 {
				return
			}
			m.compare(ctx, batch)
		}
	}
}

// compare asks twotier about verdicts and records the answers.
func (m *Mirror) compare(ctx context.Context, batch []Verdict) {
	ops := make([]client.Op, len(batch))
	for i := range batch {
		ops[i].Acquire = m.request(&batch[i])
	}
	results, err := m.opt.Twotier.Batch(ctx, ops)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range batch {
		switch {
		case err != nil:
			m.book.recordError(&batch[i], err)
		case results[i].Err != nil:
			m.book.recordError(&batch[i], results[i].Err)
		default:
			m.book.record(&batch[i], results[i].Acquire)
		}
	}
}

// request returns the question about a verdict: a charge if the old limiter has counted the events,
// which returns twotier's verdict and counts whatever it is, and a dry run if it has not.
func (m *Mirror) request(v *Verdict) *client.AcquireRequest {
	for i := range v.Checks {
		c := &v.Checks[i]
		if len(c.Limits)+len(c.Rules) == 0 {
			c.Limits, c.Rules = m.opt.Default.Limits, m.opt.Default.Rules
		}
		c.Namespace = cmp.Or(c.Namespace, m.opt.Default.Namespace)
	}
	r := &client.AcquireRequest{At: time.UnixMilli(v.At), Checks: v.Checks}
	if len(v.Checks) == 1 {
		r.Check, r.Checks = v.Checks[0], nil
	}
	r.Charge = v.Allowed || m.opt.CountDenied
	r.DryRun = !r.Charge
	return r
}

const (
	defaultWaiting  = 1 << 16
	maxWaitingBytes = 64 << 20
	// maxBatch is the number of verdicts in one request to twotier.
	maxBatch = 1000
	// settling is how long a verdict waits for earlier ones that are still on their way. Several
	// processes and connections of an application deliver them in any order.
	settling = 100 * time.Millisecond
)

// queue holds verdicts until they are compared, in the order of their times.
type queue struct {
	max int

	mu    sync.Mutex
	list  []waiting
	bytes int64
}

// waiting is a verdict in the queue.
type waiting struct {
	Verdict

	arrived time.Time
}

// add queues a verdict unless too many wait.
func (q *queue) add(v *Verdict, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) >= q.max || q.bytes+v.Size() > maxWaitingBytes {
		return false
	}
	q.list = append(q.list, waiting{*v, now})
	q.bytes += v.Size()
	return true
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list)
}

// take removes the next verdicts to compare: those that have arrived until some time, and all with
// an earlier time than one of them. At the same time, allowed events come before refused
// ones, because they are the reason of the refusal.
func (q *queue) take(until time.Time) []Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	last, ready := int64(0), false
	for i := range q.list {
		if w := &q.list[i]; !w.arrived.After(until) {
			last, ready = max(last, w.At), true
		}
	}
	if !ready {
		return nil
	}
	slices.SortStableFunc(q.list, func(x, y waiting) int {
		switch {
		case x.At != y.At || x.Allowed == y.Allowed:
			return cmp.Compare(x.At, y.At)
		case x.Allowed:
			return -1
		}
		return 1
	})
	var batch []Verdict
	for i := 0; i < len(q.list) && len(batch) < maxBatch && q.list[i].At <= last; i++ {
		batch = append(batch, q.list[i].Verdict)
		q.bytes -= q.list[i].Size()
	}
	q.list = slices.Delete(q.list, 0, len(batch))
	return batch
}
