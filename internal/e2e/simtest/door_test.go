package simtest

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"twotier.dev/twotier"
	door "twotier.dev/twotier/httpapi/client"
)

// outside is the Go client on a separate host. It reaches the nodes by HTTP over connections that
// break. It learns the table of owners, and resends lost requests within its sessions.
type outside struct {
	*door.Client
	proc *proc // the one the ledger blames, as the answering node is not known
}

// answering is how long a node may work on an HTTP request: httpapi's default.
const answering = 2 * time.Second

func (w *world) newOutside() (*outside, error) {
	host := w.net.Start("10.0.1.1")
	var nodes []string
	for i := range hosts {
		nodes = append(nodes, ip(i+1)+":8080")
	}
	c, err := door.New(door.Options{
		Addresses: nodes, Timeout: 2 * time.Second, AttemptTimeout: 300 * time.Millisecond,
		Lanes:  1,
		Logger: w.logger("client"),
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return host.Dial(ctx, to)
		},
	})
	return &outside{c, &proc{w: w, id: "client", ip: "10.0.1.1", host: host}}, err
}

func (o *outside) close() error {
	defer o.proc.host.Stop()
	return o.Close(context.Background())
}

// do executes operations.
func (o *outside) do(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	requests := make([]door.Op, len(ops))
	for i := range ops {
		requests[i] = request(&ops[i])
	}
	answers := make([]door.Result, 1)
	if r := &requests[0]; len(ops) == 1 && r.Add != nil {
		a, err := o.Add(ctx, *r.Add)
		answers[0] = door.Result{Add: &a, Err: err}
	} else if len(ops) == 1 {
		a, err := o.Acquire(ctx, *r.Acquire)
		answers[0] = door.Result{Acquire: &a, Err: err}
	} else {
		var err error
		if answers, err = o.Batch(ctx, requests); err != nil {
			answers = make([]door.Result, len(ops))
			answers[0].Err = err
		}
	}
	for i := range answers {
		res[i] = result(&answers[i])
	}
}

// request converts an operation for the Go client.
func request(op *twotier.Op) door.Op {
	at, ack := time.Time{}, door.AckMemory
	if op.TS != 0 {
		at = time.UnixMilli(op.TS)
	}
	if op.Ack == twotier.AckStore {
		ack = door.AckRedis
	}
	first := &op.Checks[0]
	if op.Kind == twotier.Add {
		return door.Op{Add: &door.AddRequest{Key: string(first.Key), N: first.N, At: at, Ack: ack}}
	}
	r := &door.AcquireRequest{At: at, Ack: ack, CountDenied: op.CountDenied, Charge: op.Charge,
		DryRun: op.DryRun}
	for i := range op.Checks {
		c := door.Check{Key: string(op.Checks[i].Key), N: op.Checks[i].N}
		for _, l := range op.Checks[i].Limits {
			c.Limits = append(c.Limits,
				door.Limit{Window: time.Duration(l.Window) * time.Millisecond, Max: l.Max})
		}
		r.Checks = append(r.Checks, c)
	}
	return door.Op{Acquire: r}
}

// failure converts an error of the Go client.
func failure(err error) error {
	switch {
	case errors.Is(err, door.ErrUnknownOutcome):
		return twotier.ErrUnknownOutcome
	case errors.Is(err, door.ErrOverloaded):
		return twotier.ErrOverload
	case errors.Is(err, door.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return twotier.ErrUnavailable
	}
	return err
}

// result converts an answer of the Go client. An error means that nothing was counted, unless it is
// of unknown outcome.
func result(a *door.Result) (res twotier.Result) {
	switch {
	case a.Err != nil:
		res.Err = failure(a.Err)
	case a.Add != nil:
		res.Allowed, res.Source, res.Degraded = true, twotier.Source(a.Add.Source), a.Add.Degraded
	default:
		res.Allowed, res.Source = a.Acquire.Allowed, twotier.Source(a.Acquire.Source)
		res.Degraded = a.Acquire.Degraded
		for _, c := range a.Acquire.Checks {
			res.AddCheck().Refused = !c.Allowed
		}
	}
	return res
}

// distinct executes operations on distinct values in a batch, for two seconds.
func (o *outside) distinct(ops []*valueOp) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	requests := make([]door.Op, len(ops))
	for i, op := range ops {
		requests[i].Distinct = op.request()
	}
	answers, err := o.Batch(ctx, requests)
	for i, op := range ops {
		switch {
		case err != nil:
			op.err = failure(err)
		case answers[i].Err != nil:
			op.err = failure(answers[i].Err)
		default:
			op.take(answers[i].Distinct)
		}
	}
}

// request converts an operation on distinct values for the Go client.
func (op *valueOp) request() *door.DistinctRequest {
	r := &door.DistinctRequest{Key: op.key}
	for _, name := range op.names {
		r.Values = append(r.Values, string(name))
	}
	if op.TS != 0 {
		r.At = time.UnixMilli(op.TS)
	}
	if op.Ack == twotier.AckStore {
		r.Ack = door.AckRedis
	}
	for _, l := range op.Values[0].Limits {
		window := time.Duration(l.Window) * time.Millisecond
		if l.Max == twotier.MaxBound {
			r.Windows = append(r.Windows, window)
		} else {
			r.Limits = append(r.Limits, door.Limit{Window: window, Max: l.Max})
		}
	}
	return r
}

// take converts an answer of the Go client.
func (op *valueOp) take(a *door.DistinctAnswer) {
	var judged twotier.CheckResult
	for _, c := range a.Counts {
		judged.Limits = append(judged.Limits, twotier.LimitResult{Max: c.Max, Count: c.Count,
			Window: c.Window.Milliseconds(), Error: c.Error, Refused: c.Refused})
	}
	op.res = twotier.Result{Allowed: !a.Over, RetryAfter: a.RetryAfter.Milliseconds(),
		Source: twotier.Source(a.Source), Degraded: a.Degraded,
		Values: []twotier.CheckResult{judged}}
}

// answers are a node's answers about keys.
type answers map[string]answer

// bounds are the bounds of a count.
type bounds struct{ lo, hi int64 }

type answer struct {
	counts []bounds // by window
	within moments
	err    error
}

// ask asks every node about keys.
func (w *world) ask(keys []string) map[*proc]answers {
	nodes := map[*proc]answers{}
	for _, p := range w.alive() {
		nodes[p] = answers{}
		for some := range slices.Chunk(keys, 200) {
			p.readAll(some, nodes[p])
		}
	}
	return nodes
}

// readAll asks a node about keys, all at the same time.
func (p *proc) readAll(keys []string, said answers) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var limits []twotier.Limit
	for _, window := range p.w.windows() {
		limits = append(limits, twotier.Limit{Window: window})
	}
	ops, res := make([]twotier.Op, len(keys)), make([]twotier.Result, len(keys))
	for i, key := range keys {
		check := twotier.Check{Key: []byte(key), Limits: limits}
		ops[i] = twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{check}}
	}
	from := time.Now()
	p.node.DoAll(ctx, ops, res)
	within := moments{from, time.Now()}
	for i, key := range keys {
		a := answer{err: res[i].Err, within: within}
		if a.err == nil {
			for _, limit := range res[i].Checks[0].Limits {
				a.counts = append(a.counts, bounds{limit.Lo, limit.Hi})
			}
		}
		said[key] = a
	}
}
