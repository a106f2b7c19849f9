package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/outbox"
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
	*outbox.Queue[notification]
	opt    Options
	client *http.Client
	began  time.Time

	mu     sync.Mutex
	recent *recent
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
	n := &Notifier{opt: opt, began: time.Now(), recent: newRecent()}
	n.Queue = outbox.New(outbox.Options[notification]{Send: n.post, Most: maxQueue,
		Batch: maxBatch, Attempts: maxAttempts, IsFinal: isFinal, Logger: opt.Logger,
		Failed: "notifications can't be sent and are dropped; " +
			"twotier_notifications_total counts them",
		Works: "notifications are sent again", About: []any{"host", to.Host},
		Metric: "twotier_notifications_total", Help: "Notifications of counts that have " +
			"reached the warning level of a rule, by outcome: sent to --notify-url, or dropped " +
			"because it is slow or fails.", Sent: "sent"})
	n.client = newClient(opt.transport)
	return n, nil
}

// Receives implements [decisions.Sink]. Only a plain allowance is near no limit.
func (*Notifier) Receives(v twotier.Verdict) bool { return v != twotier.Allowed }

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
	if n.Add(n.notificationOf(d, l)) { // otherwise the key's next request tries again
		n.recent.add(id, now+windowOf(l))
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
	lost := n.Queue.Close(ctx)
	n.client.CloseIdleConnections()
	if lost > 0 {
		return fmt.Errorf("--notify-url: %d notifications are not sent", lost)
	}
	return nil
}

// generation is how many crossings a map of recent holds. One takes about 40 bytes.
const generation = 32768

// recent remembers crossings for some time: in two maps, of which the older one is forgotten as a
// whole when the newer one is full.
type recent struct {
	seed         maphash.Seed
	newer, older map[uint64]time.Duration // until when the crossing is remembered
}

func newRecent() *recent {
	return &recent{seed: maphash.MakeSeed(), newer: map[uint64]time.Duration{}}
}

// identity is the identity of a crossing. A limit or a level that has changed is crossed anew.
type identity struct {
	key                uint64 // its hash
	namespace, rule    string // names; a rule without a name is the limit of a descriptor
	window, max, level int64
	period             *twotier.Period
	distinct           bool
}

// id returns a hash of a crossing's identity.
func (r *recent) id(d *decisions.Decision, l *twotier.LimitResult) uint64 {
	return maphash.Comparable(r.seed, identity{maphash.Bytes(r.seed, d.Key), d.Rule.Space(),
		d.Rule.Name, l.Window, l.Max, d.Rule.Warn, l.Period, d.Distinct})
}

// has reports whether a crossing is remembered at a time.
func (r *recent) has(id uint64, now time.Duration) bool {
	return now < max(r.newer[id], r.older[id])
}

// add remembers a crossing until a time.
func (r *recent) add(id uint64, until time.Duration) {
	if len(r.newer) >= generation {
		r.newer, r.older = make(map[uint64]time.Duration, generation), r.newer
	}
	r.newer[id] = until
}

const (
	// maxBatch bounds the notifications in one request.
	maxBatch = 50
	// maxAttempts bounds the requests for one batch.
	maxAttempts = 6
	// timeout bounds one request.
	timeout = 5 * time.Second
	// maxAnswer bounds how much of an answer is read, so that its connection can be used again.
	maxAnswer = 64 << 10
)

// newClient returns a client that follows no redirects, since notifications have keys and their URL
// may have a credential. A nil transport is the network.
func newClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1,
			IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	}
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// statusError is an answer other than 2xx.
type statusError struct{ status int }

// Error returns the status, and the remedy if the webhook has moved.
func (e *statusError) Error() string {
	text := fmt.Sprintf("it answers %d %s", e.status, http.StatusText(e.status))
	if e.status/100 == 3 {
		text += "; redirects are not followed, so name the URL that it redirects to"
	}
	return text
}

// isFinal reports whether the same request can't succeed later.
func isFinal(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.status < 500 && e.status != http.StatusTooManyRequests &&
		e.status != http.StatusRequestTimeout
}

// post sends a batch in one request. Its errors don't have the URL.
func (n *Notifier) post(ctx context.Context, batch []notification) (sent int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, _ := json.Marshal(batch) // texts, numbers and a time of this century always marshal
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.opt.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "twotier/"+n.opt.Version)
	res, err := n.client.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 != 2 {
		return 0, &statusError{res.StatusCode}
	}
	return len(batch), nil
}
