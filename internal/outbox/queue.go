package outbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/metrics"
	"twotier.dev/twotier/internal/retry"
)

// Options configure a [Queue].
type Options[T any] struct {
	// Send sends a batch, and returns how many of its items have arrived, and an error unless all
	// have. It keeps nothing of the batch. ctx is done when sending is given up.
	Send func(ctx context.Context, batch []T) (n int, err error)
	// Count returns the number of entries that end in some items; nil means that every item is one.
	Count func(items []T) int
	// Most bounds the items that wait, apart from the batch that is being sent.
	Most int
	// Batch bounds the items of a batch; 0 means all that wait. Gather is how long an incomplete
	// batch waits for more.
	Batch  int
	Gather time.Duration
	// Attempts bounds the attempts to send a batch; 0 means one. IsFinal reports whether an error
	// makes further ones useless; nil means that none does.
	Attempts int
	IsFinal  func(error) bool
	// MayHang is set if Send may ignore its context: then Close does not wait for it.
	MayHang bool
	// Logger receives Failed when sending fails, and Works when it works again, both with About.
	// Nil means silence.
	Logger        *slog.Logger
	Failed, Works string
	About         []any
	// Metric is the name of the counter of entries, and Help its text. Its label outcome is Sent or
	// "dropped".
	Metric, Help, Sent string
}

// Queue queues and sends entries. Make one with [New].
type Queue[T any] struct {
	metrics.Unchecked

	opt  Options[T]
	wake chan struct{} // holds one: there is something to send
	full chan struct{} // holds one: there is a complete batch
	done chan struct{} // closed when the sender has ended

	closing context.Context // done when Close is called
	close   context.CancelFunc
	sending context.Context // done when sending is given up
	giveUp  context.CancelFunc

	sent, dropped, inFlight atomic.Int64 // entries

	mu      sync.Mutex
	waiting []T
	started bool
	closed  bool

	// The fields below belong to the sender.
	failing bool      // the last batch failed, and that has been logged
	logged  time.Time // when the log said so last
}

// New returns a queue that sends nothing before Open.
func New[T any](opt Options[T]) *Queue[T] {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Count == nil {
		opt.Count = func(items []T) int { return len(items) }
	}
	q := &Queue[T]{opt: opt, wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
		done: make(chan struct{})}
	q.closing, q.close = context.WithCancel(context.Background())
	q.sending, q.giveUp = context.WithCancel(context.Background())
	return q
}

// Open starts to send.
func (q *Queue[T]) Open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.started && !q.closed {
		q.started = true
		go q.runSend()
	}
}

// Add queues an entry, which consists of these items, and reports true, or drops it.
func (q *Queue[T]) Add(entry ...T) bool {
	q.mu.Lock()
	fits := !q.closed && len(q.waiting)+len(entry) <= q.opt.Most
	if fits {
		q.waiting = append(q.waiting, entry...)
	}
	isFull := q.opt.Batch > 0 && len(q.waiting) >= q.opt.Batch
	q.mu.Unlock()
	if !fits {
		q.dropped.Add(1)
		return false
	}
	signal(q.wake)
	if isFull {
		signal(q.full)
	}
	return true
}

// signal sends a signal, unless one is already pending.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Close sends the waiting entries, each at most once more. Those that are not sent when ctx is done
// are dropped. It returns how many were lost meanwhile, and may be called twice.
func (q *Queue[T]) Close(ctx context.Context) (lost int64) {
	before := q.dropped.Load()
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.close()
		if !q.started {
			go q.runSend()
		}
	}
	q.mu.Unlock()
	defer context.AfterFunc(ctx, q.giveUp)()
	if q.opt.MayHang {
		select {
		case <-q.done:
		case <-ctx.Done():
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.dropped.Load() - before + q.inFlight.Load() + int64(q.opt.Count(q.waiting))
		}
	}
	<-q.done
	q.giveUp() // ends nothing now, but frees the context
	return q.dropped.Load() - before
}

// Sent returns the number of entries that have arrived.
func (q *Queue[T]) Sent() int64 { return q.sent.Load() }

// Dropped returns the number of entries that were dropped.
func (q *Queue[T]) Dropped() int64 { return q.dropped.Load() }

// Collect implements [prometheus.Collector].
func (q *Queue[T]) Collect(ch chan<- prometheus.Metric) {
	total := metrics.Sink(ch).Totals(q.opt.Metric, q.opt.Help, "outcome")
	total(q.Sent(), q.opt.Sent)
	total(q.Dropped(), "dropped")
}

// take removes the next batch. Its memory is used again for the next one.
func (q *Queue[T]) take(last []T) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.waiting
	if q.opt.Batch == 0 || len(batch) <= q.opt.Batch {
		q.waiting = last[:0]
	} else {
		batch = append(last[:0], batch[:q.opt.Batch]...)
		q.waiting = slices.Delete(q.waiting, 0, q.opt.Batch)
	}
	q.inFlight.Store(int64(q.opt.Count(batch)))
	return batch
}

const (
	// firstPause is the longest pause after the first attempt. It doubles with each attempt.
	firstPause = time.Second
	// quiet is the least time between two log messages about failures: a disk that is almost full
	// fails every other write.
	quiet = time.Minute
)

// runSend sends until Close, and then the rest of the queue.
func (q *Queue[T]) runSend() {
	defer close(q.done)
	var batch []T
	for open := true; open; {
		select {
		case <-q.wake:
			q.awaitBatch()
		case <-q.closing.Done():
			open = false
		}
		for batch = q.take(batch); len(batch) > 0; batch = q.take(batch) {
			q.sendBatch(batch)
			clear(batch)
		}
	}
}

// awaitBatch waits for a complete batch, but no longer than the options say or once Close was
// called.
func (q *Queue[T]) awaitBatch() {
	if q.opt.Gather == 0 {
		return
	}
	timer := time.NewTimer(q.opt.Gather)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.full:
	case <-q.closing.Done():
	}
}

// sendBatch sends a batch, again after a failure that may pass, or drops it.
func (q *Queue[T]) sendBatch(batch []T) {
	for attempt := range max(1, q.opt.Attempts) {
		if attempt > 0 {
			longest := firstPause << (attempt - 1)
			retry.Pause(q.closing, longest/2+rand.N(longest/2))
		}
		n, err := q.opt.Send(q.sending, batch)
		q.sent.Add(int64(q.opt.Count(batch[:n])))
		if batch = batch[n:]; err == nil {
			q.recordSuccess()
			return
		}
		final := q.opt.IsFinal != nil && q.opt.IsFinal(err)
		if final || attempt+1 >= q.opt.Attempts || q.closing.Err() != nil {
			q.drop(batch, err)
			return
		}
	}
}

// recordSuccess logs that sending works again, if it had failed.
func (q *Queue[T]) recordSuccess() {
	if q.failing {
		q.failing = false
		q.opt.Logger.Info(q.opt.Works, append(q.opt.About, "dropped", q.Dropped())...)
	}
}

// drop drops a batch, and logs the reason unless it has been logged.
func (q *Queue[T]) drop(batch []T, err error) {
	q.dropped.Add(int64(q.opt.Count(batch)))
	if !q.failing && (q.logged.IsZero() || time.Since(q.logged) >= quiet) {
		q.failing, q.logged = true, time.Now()
		q.opt.Logger.Warn(q.opt.Failed, append(q.opt.About, "error", err)...)
	}
}
