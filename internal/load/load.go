package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fastjson"
)

// run is the state of one call of [Run].
type run struct {
	options  Options
	client   *Client
	parsers  fastjson.ParserPool
	serial   atomic.Uint64 // numbers distinct keys
	answered counts
	reported struct{ operations, failed int64 } // the totals at the last Progress

	mu     sync.Mutex
	errors map[string]int64
}

// counts sums up the operations that answers reported, by outcome.
type counts struct{ operations, allowed, refused, failed atomic.Int64 }

// Run sends load until the duration is over or ctx is done, and returns its measurements. It
// returns an error only for invalid options; failed requests are part of the result.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.fill(); err != nil {
		return Result{}, err
	}
	client, err := NewClient(ClientOptions{
		URL: o.URL, Token: o.Token, TLS: o.TLS, Connections: o.Connections, Timeout: o.Timeout,
	})
	if err != nil {
		return Result{}, err
	}
	defer client.Close()
	r := &run{options: o, client: client, errors: make(map[string]int64)}
	loop := Loop{Rate: o.Rate / float64(o.perRequest()), Duration: o.Duration}
	if o.Progress != nil {
		loop.Progress = r.progress
	}
	return r.result(loop.Run(ctx, r.workers())), nil
}

func (r *run) workers() (all []Worker) {
	apart := time.Now().UnixMilli()
	for w := range r.options.Connections {
		bodies := newBodies(&r.options, w, apart, &r.serial)
		var body []byte
		all = append(all, Worker{
			Next: func() (time.Duration, bool) { body = bodies.body(); return 0, true },
			Do:   func() error { return r.send(body) },
		})
	}
	return all
}

// progress reports the traffic since its last call, about a second ago.
func (r *run) progress(elapsed time.Duration, since Timing) {
	last := r.reported
	r.reported.operations, r.reported.failed = r.answered.operations.Load(),
		r.answered.failed.Load()
	r.options.Progress(Progress{
		Elapsed:      elapsed,
		OpsPerSecond: float64(r.reported.operations-last.operations) / since.Seconds,
		Errors:       since.Errors + r.reported.failed - last.failed,
		Latency:      since.Latency,
	})
}

// send makes one request and counts its outcome.
func (r *run) send(body []byte) error {
	err := r.client.Post(r.options.path(), body, r.read)
	if err != nil {
		r.count(reason(err), 1)
	}
	return err
}

func (r *run) count(reason string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors[reason] += n
}

// errNotJSON means that something other than twotier answered.
var errNotJSON = errors.New("not a JSON answer")

// read counts the operations that an answer reports.
func (r *run) read(answer []byte) error {
	operations := int64(1)
	switch r.options.Op {
	case "acquire":
		if bytes.Contains(answer, []byte(`"allowed":true`)) {
			r.answered.allowed.Add(1)
		} else {
			r.answered.refused.Add(1)
		}
	case "batch":
		parser := r.parsers.Get()
		defer r.parsers.Put(parser)
		parsed, err := parser.ParseBytes(answer)
		if err != nil {
			return errNotJSON
		}
		operations = int64(r.options.Batch)
		if failed := int64(len(parsed.GetArray("errors"))); failed > 0 {
			r.count("operations of a batch", failed)
			r.answered.failed.Add(failed)
			operations -= failed
		}
	}
	r.answered.operations.Add(operations)
	return nil
}

// reason groups errors, because their texts differ by port.
func reason(err error) string {
	var dial *net.OpError
	var status *StatusError
	switch {
	case errors.As(err, &status), errors.Is(err, errNotJSON):
		return err.Error()
	case errors.Is(err, fasthttp.ErrTimeout), errors.Is(err, fasthttp.ErrDialTimeout):
		return "timeout"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "no connection"
	case errors.Is(err, fasthttp.ErrConnectionClosed), errors.As(err, &dial):
		return "connection closed"
	}
	return fmt.Sprintf("other (%s)", strings.TrimPrefix(fmt.Sprintf("%T", errors.Unwrap(err)), "*"))
}
