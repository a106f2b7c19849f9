package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier"
)

// Client is a client of a cluster. Make one with [New] and share it: it is safe for concurrent use.
type Client struct {
	opt     Options
	gateLog *slog.Logger    // for warnings about gates
	ctx     context.Context // done when Close begins
	stop    context.CancelFunc
	cut     context.Context // done when nothing may wait any more
	cutOff  context.CancelFunc
	running sync.WaitGroup
	calls   sync.Pool // of *call
	parsers fastjson.ParserPool
	turn    atomic.Uint32
	hints   chan *link    // the table is out of date, and this node may have a newer one
	learner chan struct{} // buffered, size 1; empty while the table is being read
	seeds   []*link
	view    atomic.Pointer[view]
	stats   counters

	mu    sync.Mutex
	links map[string]*link // by address; nil once closed
}

// New returns a client, which starts looking for the owners at once. It does not fail if no node
// can be reached.
func New(o Options) (*Client, error) {
	gateLog := cmp.Or(o.Logger, slog.Default())
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{opt: o, gateLog: gateLog, hints: make(chan *link, 1),
		learner: make(chan struct{}, 1), links: map[string]*link{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.cut, c.cutOff = context.WithCancel(context.Background())
	c.learner <- struct{}{}
	c.calls.New = func() any { return new(call) }
	for _, a := range o.Addresses {
		if c.links[a] == nil {
			c.links[a] = newLink(c, a)
			c.seeds = append(c.seeds, c.links[a])
		}
	}
	c.view.Store(&view{any: c.seeds})
	c.running.Go(c.runRefresh)
	return c, nil
}

// Close refuses further calls, fails calls that have not been sent, and waits for the others. When
// ctx ends, it cuts their connections. When Close returns, no goroutine of the client runs any
// more. It may be called twice.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.links = nil
	c.mu.Unlock()
	c.stop()
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		c.cutOff()
		<-done
	}
	c.cutOff()
	return err
}

// Add counts events.
func (c *Client) Add(ctx context.Context, r AddRequest) (a AddAnswer, err error) {
	res := c.run(ctx, &Op{Add: &r}, 0)
	return orZero(res.Add), res.Err
}

// Count returns the counts of a key.
func (c *Client) Count(ctx context.Context, r CountRequest) (a CountAnswer, err error) {
	res := c.run(ctx, &Op{Count: &r}, 0)
	return orZero(res.Count), res.Err
}

// Acquire decides whether events may pass, and counts them if so. A refusal is an answer, not an
// error.
func (c *Client) Acquire(ctx context.Context, r AcquireRequest) (a AcquireAnswer, err error) {
	res := c.run(ctx, &Op{Acquire: &r}, 0)
	return orZero(res.Acquire), res.Err
}

// orZero returns an answer, or a zero one if there is none.
func orZero[A any](a *A) (answer A) {
	if a != nil {
		answer = *a
	}
	return answer
}

// run executes one operation that so many nodes were asked for before.
func (c *Client) run(ctx context.Context, o *Op, asked int) (r Result) {
	at, err := o.owner(c.view.Load().table)
	k := c.calls.Get().(*call)
	k.begin()
	if err == nil {
		err = k.add(o)
	}
	k.by = c.deadline(ctx)
	var refused error // from a node that had no honest answer
	var tried trail
	for err == nil {
		var l *link
		var left bool
		if l, left, err = c.do(ctx, k, at, &tried); left {
			return Result{Err: o.outcomeError(err, asked+tried.n)}
		}
		if err != nil {
			if refused != nil && errors.Is(err, ErrUnavailable) {
				err = refused // the others could not be reached
			}
			break
		}
		if from := c.readReply(k, o, &r); from == twotier.SourceOwner && tried.direct {
			c.refresh(l)
		}
		if err = r.Err; !o.needsAnother(err) || tried.full() {
			break
		}
		if next, _ := c.chooseNode(at, &tried); next == nil {
			break
		}
		refused, err = err, nil // this node refused, another one may not
	}
	c.calls.Put(k)
	r.Err = o.outcomeError(err, asked+tried.n)
	return r
}

// readReply decodes the only answer of a call.
func (c *Client) readReply(k *call, o *Op, r *Result) (from twotier.Source) {
	p := c.parsers.Get()
	defer c.parsers.Put(p)
	var answers []*fastjson.Value
	if answers, r.Err = readAll(p, k); r.Err == nil {
		from = r.read(answers[0], o)
	}
	return from
}

// deadline returns when a call that begins now times out.
func (c *Client) deadline(ctx context.Context) time.Time {
	by := time.Now().Add(c.opt.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(by) {
		return d
	}
	return by
}

// counters count the work of a client.
type counters struct{ ops, requests, direct, repeated, refreshed atomic.Int64 }

// Stats are the totals of a client since it was made.
type Stats struct {
	// Ops is the number of answered operations, Direct the number of these that were sent straight
	// to their owner.
	Ops, Direct int64
	// Requests is the number of requests that carried operations, Repeated the number of additional
	// attempts.
	Requests, Repeated int64
	// Refreshed is how often the table of owners was read. Members is the number of nodes in it, 0
	// while there is none.
	Refreshed int64
	Members   int
}

// Stats returns a snapshot of the totals.
func (c *Client) Stats() Stats {
	s := Stats{
		Ops: c.stats.ops.Load(), Direct: c.stats.direct.Load(), Requests: c.stats.requests.Load(),
		Repeated:  c.stats.repeated.Load(),
		Refreshed: c.stats.refreshed.Load(),
	}
	if t := c.view.Load().table; t != nil {
		s.Members = len(t.members)
	}
	return s
}

// Options configure a [Client]. The zero value of a field means its default.
type Options struct {
	// Addresses are nodes to start with, as host:port. One reachable node is enough: the client
	// learns the others from it. Required.
	Addresses []string
	// Timeout bounds each call, with all its attempts. Default: 3 s. A context may end earlier.
	Timeout time.Duration
	// AttemptTimeout is how long to wait for an answer before sending the request again. Default: a
	// quarter of Timeout.
	AttemptTimeout time.Duration
	// Refresh is how often to read the table of owners, plus or minus a quarter. The client also
	// reads it when an answer shows that it is out of date. Default: 5 s.
	Refresh time.Duration
	// OnlyAddresses restricts the client to Addresses, for a proxy or a load balancer in front of
	// nodes that can't be reached directly.
	OnlyAddresses bool
	// Lanes is how many requests may be in flight to a node at the same time, each on its own
	// connection. There are as many lanes again for slow operations: operations with AckRedis, and
	// operations that the node has to forward. Default: 2.
	Lanes int
	// MaxBatch is the number of operations at which a request is full, up to 5,000. Default: 1,000.
	MaxBatch int
	// MaxWaiting is how many calls may wait for each node before more are refused with
	// [ErrOverloaded]. Default: 8,192.
	MaxWaiting int
	// Dial makes the connections to nodes, like net.Dialer.DialContext: through a proxy, from a
	// certain address, or on a network made by a test. ctx ends when the connection is no longer
	// wanted. TLS is added on top. network is "tcp". Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS makes all connections use TLS, for nodes with --tls-cert or behind a proxy that requires
	// it. Default: none.
	TLS *tls.Config
	// Token is presented to nodes with --tokens. It needs the roles that the calls require.
	// Default: none.
	Token string
	// Authorization is the value of the Authorization header, in place of Token, for a proxy that
	// requires it. Default: none.
	Authorization string
	// Logger logs when a node stops answering and when it answers again. Default: none.
	Logger *slog.Logger
}

// maxBatch is half of a server's maximum for one request, because the last call added to a request
// may have as many operations again.
const maxBatch = 5_000

func (o Options) withDefaults() (Options, error) {
	if len(o.Addresses) == 0 {
		return o, fmt.Errorf("client: Options.Addresses is empty, want at least one host:port")
	}
	for i, a := range o.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return o, fmt.Errorf("client: Options.Addresses[%d]: %w", i, err)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Timeout", o.Timeout}, {"AttemptTimeout", o.AttemptTimeout}, {"Refresh", o.Refresh}} {
		if d.value < 0 {
			return o, fmt.Errorf("client: Options.%s is %v, want more than 0", d.name, d.value)
		}
	}
	o.Timeout, o.Refresh = cmp.Or(o.Timeout, 3*time.Second), cmp.Or(o.Refresh, 5*time.Second)
	o.AttemptTimeout = cmp.Or(o.AttemptTimeout, max(o.Timeout/4, time.Millisecond))
	for _, n := range []struct {
		name         string
		value        *int
		preset, most int
	}{
		{"Lanes", &o.Lanes, 2, 64},
		{"MaxBatch", &o.MaxBatch, 1000, maxBatch},
		{"MaxWaiting", &o.MaxWaiting, 8192, 1 << 20},
	} {
		if *n.value = cmp.Or(*n.value, n.preset); *n.value < 0 || *n.value > n.most {
			return o, fmt.Errorf("client: Options.%s is %d, want 1 to %d", n.name, *n.value, n.most)
		}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: keepAlive}).DialContext
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}
