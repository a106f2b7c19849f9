package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fastjson"
)

// run is one run.
type run struct {
	options  Options
	client   *fasthttp.HostClient
	uri      string
	start    time.Time
	end      time.Time
	ticket   atomic.Int64 // requests of an open loop that were handed out
	sent     atomic.Int64
	serial   atomic.Uint64
	parsers  fastjson.ParserPool
	recorder []*recorder
}

// Run sends load until the duration is over or ctx is done, and returns what it measured. The error is about the options;
// failed requests are in the result.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.fill(); err != nil {
		return Result{}, err
	}
	r := newRun(o)
	defer r.client.CloseIdleConnections()
	ctx, cancel := context.WithDeadline(ctx, r.end)
	defer cancel()
	var workers sync.WaitGroup
	for w := range o.Connections {
		workers.Go(func() { r.runWorker(ctx, w) })
	}
	finished := make(chan struct{})
	go func() { workers.Wait(); close(finished) }()
	total := r.watch(finished)
	took := time.Since(r.start)
	return total.result(&r.options, took, r.unsent(took)), nil
}

func newRun(o Options) *run {
	u, _ := url.Parse(o.URL) // checked by fill
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	r := &run{options: o, uri: u.JoinPath(o.path()).String(), start: time.Now()}
	r.end = r.start.Add(o.Duration)
	r.client = &fasthttp.HostClient{
		Addr: address, IsTLS: u.Scheme == "https", TLSConfig: o.TLS, MaxConns: o.Connections,
		Dial:                          func(addr string) (net.Conn, error) { return fasthttp.DialDualStackTimeout(addr, o.Timeout) },
		NoDefaultUserAgentHeader:      true,
		DisableHeaderNamesNormalizing: true,
		// A request that is sent twice is counted twice: fasthttp must not do so on its own.
		MaxIdemponentCallAttempts: 1,
		RetryIfErr:                func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}
	for range o.Connections {
		r.recorder = append(r.recorder, &recorder{tally: newTally()})
	}
	return r
}

// watch reports progress until the workers have finished, and returns the sum of what they measured.
func (r *run) watch(finished <-chan struct{}) tally {
	total := newTally()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := r.start; ; {
		select {
		case now := <-tick.C:
			part := r.drain()
			total.add(&part)
			if r.options.Progress != nil {
				r.options.Progress(Progress{
					Elapsed: now.Sub(r.start), OpsPerSecond: float64(part.operations) / now.Sub(last).Seconds(),
					Errors: part.failures(), Latency: latencyOf(part.latency),
				})
			}
			last = now
		case <-finished:
			part := r.drain()
			total.add(&part)
			return total
		}
	}
}

func (r *run) drain() tally {
	t := newTally()
	for _, recorder := range r.recorder {
		recorder.drain(&t)
	}
	return t
}

// due returns when request i of an open loop is due.
func (r *run) due(i int64) time.Time {
	perSecond := r.options.Rate / float64(r.options.perRequest())
	return r.start.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
}

// unsent is the number of requests that were due in the time that the run took but were not sent.
func (r *run) unsent(took time.Duration) int64 {
	if r.options.Rate == 0 {
		return 0
	}
	took = min(took, r.options.Duration)
	due := int64(took.Seconds() * r.options.Rate / float64(r.options.perRequest()))
	return max(due-r.sent.Load(), 0)
}

// runWorker keeps one connection busy until ctx is done.
func (r *run) runWorker(ctx context.Context, w int) {
	bodies := newBodies(&r.options, w, r.start.UnixMilli(), &r.serial)
	for ctx.Err() == nil {
		body, due := bodies.body(), time.Time{}
		if r.options.Rate > 0 {
			var ok bool
			if due, ok = r.await(ctx, r.due(r.ticket.Add(1)-1)); !ok {
				return
			}
		}
		r.sent.Add(1)
		r.send(r.recorder[w], body, due)
	}
}

// await waits until a request is due and returns when its latency begins, or false if the run is over. If the worker was
// there in time the latency begins when it wakes up: that a timer is late by a millisecond is no fault of the server's.
func (r *run) await(ctx context.Context, due time.Time) (time.Time, bool) {
	wait := time.Until(due)
	if !due.Before(r.end) {
		return due, false
	}
	if wait <= 0 {
		return due, ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return time.Now(), true
	case <-ctx.Done():
		return due, false
	}
}

// send makes one request and records what became of it.
func (r *run) send(to *recorder, body []byte, due time.Time) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(r.uri)
	request.Header.SetMethod(fasthttp.MethodPost)
	request.Header.SetContentType("application/json")
	if r.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+r.options.Token)
	}
	request.SetBodyRaw(body)
	request.SetTimeout(r.options.Timeout)
	sent := time.Now()
	err := r.client.Do(request, response)
	done := time.Now()
	if due.IsZero() {
		due = sent
	}
	answer := outcome{}
	if err == nil {
		answer, err = r.read(response)
	}
	if err != nil {
		to.failure(reason(err))
		// A server that refuses connections would otherwise be asked thousands of times a second.
		time.Sleep(10 * time.Millisecond)
		return
	}
	to.success(done.Sub(due), done.Sub(sent), answer)
}

// outcome is what an answer says about the operations of its request.
type outcome struct {
	operations, allowed, refused, failed int64
}

// read reads an answer.
func (r *run) read(response *fasthttp.Response) (outcome, error) {
	if code := response.StatusCode(); code != fasthttp.StatusOK {
		return outcome{}, errors.New("status " + strconv.Itoa(code))
	}
	switch r.options.Op {
	case "acquire":
		if bytes.Contains(response.Body(), []byte(`"allowed":true`)) {
			return outcome{operations: 1, allowed: 1}, nil
		}
		return outcome{operations: 1, refused: 1}, nil
	case "batch":
		parser := r.parsers.Get()
		defer r.parsers.Put(parser)
		answer, err := parser.ParseBytes(response.Body())
		if err != nil {
			return outcome{}, errors.New("not a JSON answer")
		}
		failed := int64(len(answer.GetArray("errors")))
		return outcome{operations: int64(r.options.Batch) - failed, failed: failed}, nil
	}
	return outcome{operations: 1}, nil
}

// reason puts errors into few groups: their texts have ports in them.
func reason(err error) string {
	var dial *net.OpError
	switch {
	case errors.Is(err, fasthttp.ErrTimeout), errors.Is(err, fasthttp.ErrDialTimeout):
		return "timeout"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "no connection"
	case errors.Is(err, fasthttp.ErrConnectionClosed), errors.As(err, &dial):
		return "connection closed"
	case strings.HasPrefix(err.Error(), "status "), strings.HasPrefix(err.Error(), "not a JSON"):
		return err.Error()
	}
	return fmt.Sprintf("other (%T)", err)
}
