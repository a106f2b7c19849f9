package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/fences"
	"twotier.dev/twotier/syncer"
)

// DirectOptions configure a [Direct]. The zero value of a field means its default.
type DirectOptions struct {
	// Store is the connection to Redis. Required.
	Store *Store
	// Now returns the time for operations that have none, in unix milliseconds. Required.
	Now func() int64
	// Writer identifies this incarnation of the process. It must not be the two-tier counter's
	// writer, which numbers its own rounds. Required.
	Writer string
	// Workers is the number of scripts in flight. Default: 2, so that Redis runs one while the
	// other is prepared or read; more workers would make scripts smaller, and small ones cost far
	// more per operation. In a Redis Cluster the default is 8.
	Workers int
	// Ack is the level that AckDefault stands for. Default: AckStore, which also replaces weaker
	// levels.
	Ack twotier.Ack
	// Memory bounds what is held of keys, in bytes. Default: 64 MiB.
	Memory int
	// Timeout bounds operations whose context has no deadline. Default: 2 s.
	Timeout time.Duration
}

// Direct runs operations on what Redis has, exactly and atomically for all users of the same Redis,
// in the layout of the two-tier counter: see "Pure-Redis mode" in the package's documentation.
//
// Operations that arrive while others are in flight are sent together with the next batch. One at a
// time, Redis would spend most of its time on calling the script.
//
// In a Redis Cluster, an Acquire over several partitions runs in parts, one after the other, and if
// a later part refuses, the earlier ones take their counts back.
type Direct struct {
	opt        DirectOptions
	companions map[string]*leaparray.Ladder // of bans and leases
	workers    []*directWorker

	closed atomic.Bool
	stop   context.CancelFunc
	done   sync.WaitGroup
	calls  sync.Pool // holds *directCall values that no caller waits for
}

// NewDirect checks the options and returns a Direct that is not running yet.
func NewDirect(opt DirectOptions) (*Direct, error) {
	if opt.Store == nil || opt.Now == nil || opt.Writer == "" {
		return nil, errors.New("redisstore: DirectOptions needs Store, Now and Writer")
	}
	if opt.Workers == 0 {
		opt.Workers = 2
		if opt.Store.conn.Cluster {
			opt.Workers = 8
		}
	}
	opt.Memory = cmp.Or(opt.Memory, 64<<20)
	opt.Timeout = cmp.Or(opt.Timeout, 2*time.Second)
	d := &Direct{opt: opt, companions: syncer.CompanionLadders(),
		calls: sync.Pool{New: func() any { return new(directCall) }}}
	for i := range opt.Workers {
		d.workers = append(d.workers, newDirectWorker(d, i))
	}
	return d, nil
}

// Open starts the goroutines that talk to Redis. They run until Close, even if ctx ends.
func (d *Direct) Open(ctx context.Context) error {
	if d.stop != nil {
		return errors.New("redisstore: opened twice")
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	for _, l := range d.workers {
		d.done.Go(func() { l.run(run) })
	}
	return nil
}

// Close refuses new operations, waits for operations in flight and stops every goroutine. It may be
// called twice.
func (d *Direct) Close(ctx context.Context) error {
	if d.closed.Swap(true) {
		return nil
	}
	for _, l := range d.workers {
		l.calls.Close(twotier.ErrClosed)
	}
	if d.stop == nil {
		return nil
	}
	idle := make(chan struct{})
	go func() { d.done.Wait(); close(idle) }()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("direct: %w: operations under way were cut off", twotier.ErrUnknownOutcome)
	}
	d.stop()
	<-idle
	return err
}

func (d *Direct) ladder(ns []byte) *leaparray.Ladder {
	if l, ok := d.opt.Store.opt.Ladders[string(ns)]; ok {
		return l
	}
	switch companion := twotier.Companion(ns); companion {
	case "":
	case twotier.ImportedNamespace, twotier.ValuesNamespace:
		of, _ := twotier.Accompanied(ns, nil)
		return d.ladder(of)
	default:
		return d.companions[companion]
	}
	return d.opt.Store.opt.Ladders[twotier.DefaultNamespace]
}

// mostValues returns how many values the key of a check keeps, 0 if it has none.
func (d *Direct) mostValues(c *twotier.Check) int {
	if !c.IsValues() {
		return 0
	}
	of, _ := twotier.Accompanied(c.NS, nil)
	return cmp.Or(d.opt.Store.opt.MostValues[string(of)], leaparray.DefaultMostValues)
}

// Do runs one operation, with the errors of syncer.Counter.Do.
func (d *Direct) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if err := d.checkAck(ctx, op); err != nil {
		return err
	}
	marks, err := d.do(ctx, op, res)
	if err != nil {
		return err
	}
	return d.awaitAck(ctx, op, res, marks)
}

// do is Do without waiting for an ack stronger than AckStore. It returns the marks of the scripts
// that carried out the operation.
func (d *Direct) do(ctx context.Context, op *twotier.Op,
	res *twotier.Result) (marks []fences.Mark, err error) {
	now := d.opt.Now()
	ts, err := twotier.Validate(op, d.ladder, now)
	if err != nil {
		return nil, err
	}
	if d.crossesPartitions(op) {
		return d.acquireAcrossPartitions(ctx, op, ts, res)
	}
	return d.submitAndWait(ctx, op, d.newCall(op, ts, now), res, false)
}

// submitAndWait has a worker carry out a call for an operation. For part of an acquire, it waits
// for the outcome even if ctx ends once the worker has the call: the part's counts may have to be
// taken back.
func (d *Direct) submitAndWait(ctx context.Context, op *twotier.Op, c *directCall,
	res *twotier.Result, part bool) (marks []fences.Mark, err error) {
	if ctx.Err() != nil {
		return nil, errNotSent
	}
	if err := d.submit(c); err != nil {
		return nil, err
	}
	marks, err = d.await(ctx, c, d.opt.Timeout, op, res)
	if part && errors.Is(err, errUnanswered) {
		return d.await(context.WithoutCancel(ctx), c, d.opt.Timeout, op, res)
	}
	return marks, err
}

// crossesPartitions reports whether the keys of an acquire are in several partitions of a cluster,
// so that a single script can't reach them.
func (d *Direct) crossesPartitions(op *twotier.Op) bool {
	return op.Kind == twotier.Acquire && d.opt.Store.conn.Cluster && len(d.groupByPartition(op)) > 1
}

// DoAll runs operations together and sets Err in each result. Operations that share a key, in
// whichever position, are carried out in their order.
func (d *Direct) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	calls := d.encodeAll(ctx, ops, res)
	together := d.workerForWholeList(calls)
	for i, c := range calls {
		switch {
		case res[i].Err != nil:
		case c == nil:
			res[i].Err = d.Do(ctx, &ops[i], &res[i]) // it crosses partitions
		default:
			if res[i].Err = errNotSent; ctx.Err() == nil {
				worker := cmp.Or(together, d.worker(c))
				res[i].Err = submitError(worker.calls.PutWait(ctx, c))
			}
			if res[i].Err != nil {
				calls[i] = nil
			}
		}
	}
	marks := make([][]fences.Mark, len(ops)) // of operations with a stronger ack than AckStore
	wait, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	for i, c := range calls {
		if c != nil {
			marks[i], res[i].Err = d.await(wait, c, batching.Forever, &ops[i], &res[i])
		}
	}
	d.awaitAcks(ctx, ops, res, marks)
}

// await waits for the answer to a call, and copies it. Then the call is reused.
func (d *Direct) await(ctx context.Context, c *directCall, atMost time.Duration, op *twotier.Op,
	res *twotier.Result) (marks []fences.Mark, err error) {
	if err := c.wait(ctx, atMost); err != nil {
		return nil, err
	}
	if c.copyResult(res); d.ackOrDefault(op) > twotier.AckStore && c.mark.Key != "" {
		marks = []fences.Mark{c.mark}
	}
	d.calls.Put(c)
	return marks, nil
}

// encodeAll returns the calls of a list's operations. It returns nil for operations that cross
// partitions and for refused ones, whose Err it sets.
func (d *Direct) encodeAll(ctx context.Context, ops []twotier.Op,
	res []twotier.Result) []*directCall {
	calls := make([]*directCall, len(ops))
	for i := range ops {
		op := &ops[i]
		now := d.opt.Now()
		ts, err := twotier.Validate(op, d.ladder, now)
		if err == nil {
			err = d.checkAck(ctx, op)
		}
		if res[i].Err = err; err == nil && !d.crossesPartitions(op) {
			calls[i] = d.newCall(op, ts, now)
			calls[i].inList = true
		}
	}
	return calls
}

// worker returns the worker for a call, which is the worker of its first key.
func (d *Direct) worker(c *directCall) *directWorker {
	return d.workers[c.partition()%len(d.workers)]
}

// workerForWholeList returns a worker for a whole list if calls of different workers share a key,
// and nil otherwise. With separate workers, an operation could overtake an earlier one.
func (d *Direct) workerForWholeList(calls []*directCall) *directWorker {
	several := func(c *directCall) bool { return c != nil && len(c.keys) > 1 }
	if !slices.ContainsFunc(calls, several) {
		return nil
	}
	of := make(map[uint32]*directWorker, 2*len(calls)) // by hash: it may as well be the same
	for _, c := range calls {
		if c == nil {
			continue
		}
		worker := d.worker(c)
		for i := range c.keys {
			other, known := of[c.keys[i].hash]
			if known && other != worker {
				return worker
			}
			of[c.keys[i].hash] = worker
		}
	}
	return nil
}

// submit hands a call to its worker, or refuses it if too many are waiting already.
func (d *Direct) submit(c *directCall) error {
	return submitError(d.worker(c).calls.Put(c))
}

func submitError(err error) error {
	if errors.Is(err, batching.ErrFull) {
		return fmt.Errorf("%w: %d operations wait for Redis", twotier.ErrOverload, maxWaiting)
	}
	return err
}

func (d *Direct) ackOrDefault(op *twotier.Op) twotier.Ack {
	if op.Ack == twotier.AckDefault {
		return d.opt.Ack
	}
	return op.Ack
}

// checkAck returns an error if Redis can't offer the ack that an operation asks for. It is called
// before anything is counted.
func (d *Direct) checkAck(ctx context.Context, op *twotier.Op) error {
	if d.ackOrDefault(op) <= twotier.AckStore || op.Reads() {
		return nil
	}
	partitions := make([]int, len(op.Checks))
	for i := range op.Checks {
		partitions[i] = d.opt.Store.opt.Placement.Of(op.Checks[i].NS, op.Checks[i].Key)
	}
	return d.opt.Store.Keeps(ctx, d.ackOrDefault(op), partitions...)
}

// awaitAck waits until an operation's counts are kept as its ack demands.
func (d *Direct) awaitAck(ctx context.Context, op *twotier.Op, res *twotier.Result,
	marks []fences.Mark) error {
	if d.ackOrDefault(op) <= twotier.AckStore || !op.Changes(res) {
		return nil
	}
	return cmp.Or(d.opt.Store.fences.Keep(ctx, d.ackOrDefault(op), marks)...)
}

// awaitAcks is awaitAck for a batch. It waits for everything together, but the outcome of an
// operation depends only on its own marks.
func (d *Direct) awaitAcks(ctx context.Context, ops []twotier.Op, res []twotier.Result,
	marks [][]fences.Mark) {
	for _, ack := range []twotier.Ack{twotier.AckReplica, twotier.AckDisk} {
		var list []fences.Mark
		var of []int // positions of the operations
		for i := range ops {
			if d.ackOrDefault(&ops[i]) != ack || !ops[i].Changes(&res[i]) {
				continue
			}
			for _, m := range marks[i] {
				list, of = append(list, m), append(of, i)
			}
		}
		if len(list) == 0 {
			continue
		}
		for j, err := range d.opt.Store.fences.Keep(ctx, ack, list) {
			res[of[j]].Err = cmp.Or(res[of[j]].Err, err)
		}
	}
}
