package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/metrics"
)

// maxQueue bounds the waiting notifications. One takes about half a kilobyte.
const maxQueue = 1024

// Options configure a [Notifier].
type Options struct {
	// URL is where notifications are posted, with the scheme http or https. Required.
	URL string
	// Node is the name of this node, and Version the version of the program.
	Node, Version string
	// Logger receives a message when notifications can't be sent, and one when they can again; nil
	// means silence.
	Logger *slog.Logger

	transport http.RoundTripper // in place of the network, in tests
}

// Notifier queues and posts notifications. Make one with [New].
type Notifier struct {
	metrics.Unchecked

	opt    Options
	host   string // of the URL
	client *http.Client
	began  time.Time

	queue   chan notification
	closing context.Context // done when Close is called
	close   context.CancelFunc
	sending context.Context // done when sending is given up
	giveUp  context.CancelFunc
	done    chan struct{} // closed when the sender has ended

	sent, dropped atomic.Int64
	failing       bool // the last request failed, and the log has reported it; of the sender

	mu      sync.Mutex
	recent  *recent
	started bool
	closed  bool
}

// notification is one crossing as it is posted.
type notification struct {
	Time      time.Time `json:"time"`
	Node      string    `json:"node"`
	Namespace string    `json:"namespace"`
	Key       string    `json:"key"`
	Rule      string    `json:"rule"`
	Window    string    `json:"window"`
	Max       int64     `json:"max"`
	Count     int64     `json:"count"`
	At        int64     `json:"at"`
	Distinct  bool      `json:"distinct,omitempty"`
	Shadow    bool      `json:"shadow,omitempty"`
}

// New returns a notifier that sends nothing before Open.
func New(opt Options) (*Notifier, error) {
	to, err := url.Parse(opt.URL)
	if err != nil { // its text would show the URL
		return nil, errors.New("--notify-url: not a URL")
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Notifier{opt: opt, host: to.Host, began: time.Now(), recent: newRecent(),
		queue: make(chan notification, maxQueue), done: make(chan struct{})}
	n.client = newClient(opt.transport)
	n.closing, n.close = context.WithCancel(context.Background())
	n.sending, n.giveUp = context.WithCancel(context.Background())
	return n, nil
}

// Open starts to send.
func (n *Notifier) Open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.started && !n.closed {
		n.started = true
		go n.runSend()
	}
}

// Record queues a notification of each limit of a decision whose count has reached the warning
// level of its rule, unless there was one for its key and limit within the limit's window, or drops
// it if the queue is full.
func (n *Notifier) Record(d *decisions.Decision) {
	for i := range d.Limits {
		if l := &d.Limits[i]; d.Rule != nil && d.Rule.IsNear(l.Count, l.Max) {
			n.recordCrossing(d, l)
		}
	}
}

// recordCrossing queues a notification of one limit.
func (n *Notifier) recordCrossing(d *decisions.Decision, l *twotier.LimitResult) {
	id, now := n.recent.id(d, l), time.Since(n.began)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.recent.has(id, now) {
		return
	}
	if n.closed {
		n.dropped.Add(1)
		return
	}
	select {
	case n.queue <- n.notificationOf(d, l):
		n.recent.add(id, now+windowOf(l))
	default: // the key's next request tries again
		n.dropped.Add(1)
	}
}

// notificationOf returns the notification of a crossing that happens now.
func (n *Notifier) notificationOf(d *decisions.Decision, l *twotier.LimitResult) notification {
	return notification{Time: time.Now().UTC().Truncate(time.Millisecond), Node: n.opt.Node,
		Namespace: d.Rule.Space(), Key: string(d.Key), Rule: d.Rule.Name,
		Window: twotier.FormatWindow(l.Window, l.Period), Max: l.Max, Count: l.Count,
		At: d.Rule.Warn, Distinct: d.Distinct, Shadow: d.Rule.State == twotier.RuleShadow}
}

// windowOf returns the length of a limit's window, or the time until its calendar period ends.
func windowOf(l *twotier.LimitResult) time.Duration {
	if l.Period == nil {
		return time.Duration(l.Window) * time.Millisecond
	}
	now := time.Now().UnixMilli()
	_, end := l.Period.Around(now)
	return time.Duration(end-now) * time.Millisecond
}

// Close sends the queued notifications, each at most once more. Those that are not sent when ctx is
// done are dropped, and an error reports how many were dropped meanwhile. It may be called twice.
func (n *Notifier) Close(ctx context.Context) error {
	before := n.dropped.Load()
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		n.close()
		if !n.started {
			go n.runSend()
		}
	}
	n.mu.Unlock()
	defer context.AfterFunc(ctx, n.giveUp)()
	<-n.done
	n.giveUp() // ends nothing now, but frees the context
	n.client.CloseIdleConnections()
	if lost := n.dropped.Load() - before; lost > 0 {
		return fmt.Errorf("--notify-url: %d notifications are not sent", lost)
	}
	return nil
}

// Sent returns the number of notifications that the webhook has accepted.
func (n *Notifier) Sent() int64 { return n.sent.Load() }

// Dropped returns the number of notifications that were dropped.
func (n *Notifier) Dropped() int64 { return n.dropped.Load() }
