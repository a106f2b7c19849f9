package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// others fakes nodes that have no partitions and take part in any change of mode. respond answers
// their tasks, and answer their questions.
type others struct {
	respond func(verb rpc.Verb) error
	acquire func(op *twotier.Op, res *twotier.Result) // answers an operation; nil: no answer
	answer  func(to *ring.Member, request, response any) error
	ack     twotier.Ack // of the real node

	mu    sync.Mutex
	verbs []rpc.Verb
}

func (o *others) Do(_ context.Context, _ *ring.Member, tasks []rpc.Task, res []twotier.Result) {
	for i := range tasks {
		o.mu.Lock()
		o.verbs = append(o.verbs, tasks[i].Verb)
		o.mu.Unlock()
		if tasks[i].Verb == rpc.VerbDo && o.acquire != nil {
			o.acquire(&tasks[i].Op, &res[i])
			continue
		}
		if o.respond != nil {
			res[i].Err = o.respond(tasks[i].Verb)
		}
	}
}

func (o *others) asked(verb rpc.Verb) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.verbs, verb)
}

func (*others) DoAll(context.Context, []rpc.Group, []twotier.Op, []twotier.Result, func(),
	func(int)) {
}

func (o *others) Ask(ctx context.Context, to *ring.Member, request, response any) error {
	switch {
	case ctx.Err() != nil:
		return rpc.ErrLate
	case o.answer == nil:
		return nil
	}
	return o.answer(to, request, response)
}

func (*others) RetainLinks(*ring.Table)      {}
func (*others) Stats() (s cluster.PeerStats) { return s }

// beside returns a node in a cluster with one fake node, and a key that the fake node owns. The
// test's cleanup closes them.
func beside(t *testing.T, direct node.Direct, peers *others) (n *node.Node, key []byte) {
	t.Helper()
	opt := node.Options{
		ID: "n", Ack: peers.ack, Direct: direct, Peers: peers, Store: still{},
		Clock:     storeclock.New(nil, nil),
		Placement: twotier.Placement{Partitions: 7},
	}
	rings := ringsOf(t, []string{"n", "other"}, func(table *ring.Table) { n.FollowTable(table) })
	opt.Ring = rings[0]
	var err error
	opt.Counter, err = syncer.New(syncer.Options{
		Store: embedded.New(embedded.Options{}), Now: opt.Clock.Now, Placement: opt.Placement,
		NotOwner: true,
	})
	must.Succeed(t, err)
	if n, err = node.New(opt); err == nil {
		err = errors.Join(n.Open(t.Context(), "10.0.0.1:8080"),
			rings[1].Open(t.Context(), "10.0.0.2:8080"))
	}
	must.Succeed(t, err)
	closeBoth(t, n, rings[1])
	rings[1].Enter(t.Context())
	time.Sleep(20 * time.Second)
	table := rings[0].Table()
	for i := range 1000 {
		key = fmt.Append(nil, "key", i)
		if at := table.Owner(opt.Placement.Of(nil, key)); at != table.Self() {
			return n, key
		}
	}
	t.Fatal("the other node owns nothing")
	return n, key
}

// ringsOf returns the rings of nodes that join the first one, which reports its tables.
func ringsOf(t *testing.T, ids []string, onChange func(*ring.Table)) (rings []*ring.Ring) {
	t.Helper()
	network := simnet.New(1, simnet.Weather{Delay: time.Millisecond})
	for i, id := range ids {
		host := network.Start(fmt.Sprint("10.0.0.", i+1))
		r, err := ring.New(ring.Options{
			ID: id, Bind: host.Address(), Join: []string{"10.0.0.1:7946"},
			Transport: host.Transport(), Agreement: ring.Agreement{Partitions: 7},
			OnChange: func(table *ring.Table) {
				if i == 0 && onChange != nil {
					onChange(table)
				}
			},
		})
		must.Succeed(t, err)
		rings = append(rings, r)
	}
	return rings
}

// closeBoth closes a node and another ring at the end of the test.
func closeBoth(t *testing.T, n *node.Node, r *ring.Ring) {
	t.Cleanup(func() {
		must.Succeed(t, errors.Join(n.Close(context.Background()), r.Close(context.Background())))
		time.Sleep(2 * time.Minute) // memberlist's goroutines end with their last probe
	})
}

// failing fakes a Redis whose resets fail.
type failing struct {
	node.Direct
	err error
}

func (*failing) DoAll(context.Context, []twotier.Op, []twotier.Result) {}

func (d *failing) Forget(context.Context, []byte, []byte) error { return d.err }

// TestOutcomesOfAReset makes the owner of a key, or another node that has to drop it, fail in every
// possible way. Once one node has received the reset, no error may claim that nothing was done.
func TestOutcomesOfAReset(t *testing.T) {
	invalid := &twotier.InvalidError{Check: -1, Limit: -1, Field: "key"}
	down := fmt.Errorf("%w: down", twotier.ErrUnavailable)
	for _, test := range []struct {
		name   string
		owner  error // its error to the reset
		drop   error // the others' error
		change bool  // the mode changes while the owner is asked
		redis  error // the error of Redis then
		late   bool  // the request has expired from the start
		want   error
		not    error // an error that the caller must not get in addition
	}{
		{name: "done"},
		{name: "the owner is unavailable", owner: twotier.ErrUnavailable,
			want: twotier.ErrUnknownOutcome},
		{name: "the owner is out of reach", owner: rpc.ErrUnreachable,
			want: twotier.ErrUnknownOutcome},
		{name: "the owner was told too late", owner: rpc.ErrLate, want: twotier.ErrUnknownOutcome},
		{name: "the owner is overloaded", owner: twotier.ErrOverload,
			want: twotier.ErrUnknownOutcome},
		{name: "the owner is not it", owner: rpc.ErrRefused, want: twotier.ErrUnknownOutcome},
		{name: "the owner does not answer", owner: twotier.ErrUnknownOutcome,
			want: twotier.ErrUnknownOutcome},
		{name: "there can't be such a key", owner: invalid, want: invalid,
			not: twotier.ErrUnknownOutcome},
		{name: "another is not told", drop: rpc.ErrUnreachable, want: twotier.ErrUnknownOutcome},
		{name: "the mode changes", owner: rpc.ErrRefused, change: true},
		{name: "the mode changes, and Redis is down", owner: rpc.ErrRefused, change: true,
			redis: down, want: twotier.ErrUnknownOutcome},
		{name: "too late", late: true, want: twotier.ErrUnavailable,
			not: twotier.ErrUnknownOutcome},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n *node.Node
				peers := &others{}
				peers.respond = func(verb rpc.Verb) error {
					if verb == rpc.VerbDrop {
						return test.drop
					}
					if test.change {
						if err := n.SetMode(t.Context(), cluster.Redis); err != nil {
							t.Error(err)
						}
					}
					return test.owner
				}
				var key []byte
				n, key = beside(t, &failing{err: test.redis}, peers)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.late {
					cancel()
				}
				err := n.Reset(ctx, nil, key)
				if !errors.Is(err, test.want) || test.not != nil && errors.Is(err, test.not) {
					t.Errorf("told %v, want %v", err, test.want)
				}
				if got := peers.asked(rpc.VerbDrop); got == test.late {
					t.Errorf("others were told to drop it: %v", got)
				}
			})
		})
	}
}

// forgetful fakes a Redis that forgets either a key or its companions.
type forgetful struct {
	failing
	companions bool
}

func (d *forgetful) Forget(_ context.Context, ns, _ []byte) error {
	if (twotier.Companion(ns) != "") == d.companions {
		return nil
	}
	return d.err
}

// TestPartialResetInRedis resets a key while Redis carries out only a part of it. The error must
// not claim that nothing was done.
func TestPartialResetInRedis(t *testing.T) {
	for _, companions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, key := beside(t, &forgetful{companions: companions, failing: failing{
				err: fmt.Errorf("%w: down", twotier.ErrUnavailable)}}, &others{})
			must.Succeed(t, n.SetMode(t.Context(), cluster.Redis))
			err := n.Reset(t.Context(), nil, key)
			if !errors.Is(err, twotier.ErrUnknownOutcome) ||
				errors.Is(err, twotier.ErrUnavailable) {
				t.Errorf("only companions are forgotten: %v, told %v", companions, err)
			}
		})
	}
}

// TestResetOfALoneNode resets a key during the last flush, which is refused: nothing is done, and
// the error reports that without mentioning other nodes.
func TestResetOfALoneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := alone(t, node.Options{})
		must.Succeed(t, n.Flush(t.Context()))
		err := n.Reset(t.Context(), nil, []byte("key"))
		if !errors.Is(err, twotier.ErrClosed) || errors.Is(err, twotier.ErrUnknownOutcome) ||
			strings.Contains(err.Error(), "other") {
			t.Errorf("told %v, want that the node is closed", err)
		}
		must.Succeed(t, n.Close(context.Background()))
	})
}

// waiting fakes a Redis whose resets block until they are released.
type waiting struct {
	resetting
	letGo   chan struct{}
	waiting atomic.Int64
}

func (d *waiting) Forget(context.Context, []byte, []byte) error {
	d.waiting.Add(1)
	<-d.letGo
	return nil
}

// TestResetForAnotherHoldsUpAChange: a reset by another node in Redis mode ends before memory
// decides again. Otherwise it would delete the counts that memory has read.
func TestResetForAnotherHoldsUpAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &waiting{letGo: make(chan struct{})}
		peers := &others{}
		n, key := beside(t, d, peers)
		must.Succeed(t, n.SetMode(t.Context(), cluster.Redis))
		reset := []rpc.Task{{Verb: rpc.VerbReset,
			Op: twotier.Op{Checks: []twotier.Check{{Key: key}}}}}
		go n.ServeTasks(t.Context(), reset, make([]twotier.Result, 1))
		synctest.Wait()
		changed := make(chan error, 1)
		go func() { changed <- n.SetMode(t.Context(), cluster.TwoTier) }()
		time.Sleep(time.Second)
		if n.Mode() != cluster.Redis {
			t.Error("the mode changes while a reset is under way")
		}
		close(d.letGo)
		if err := <-changed; err != nil || n.Mode() != cluster.TwoTier {
			t.Errorf("%v, mode %s", err, n.Mode())
		}
	})
}

// TestResetsOfAMessageAreConcurrent: a reset that takes the store long does not hold up the others.
func TestResetsOfAMessageAreConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &waiting{letGo: make(chan struct{})}
		n, key := beside(t, d, &others{})
		must.Succeed(t, n.SetMode(t.Context(), cluster.Redis))
		tasks := make([]rpc.Task, 5)
		for i := range tasks {
			tasks[i] = rpc.Task{Verb: rpc.VerbReset,
				Op: twotier.Op{Checks: []twotier.Check{{Key: key}}}}
		}
		res := make([]twotier.Result, len(tasks))
		served := make(chan struct{})
		go func() { n.ServeTasks(t.Context(), tasks, res); close(served) }()
		synctest.Wait()
		if waiting := d.waiting.Load(); int(waiting) != len(tasks) {
			t.Errorf("%d of %d resets wait for the store", waiting, len(tasks))
		}
		close(d.letGo)
		<-served
		for i := range res {
			if res[i].Err != nil {
				t.Error(res[i].Err)
			}
		}
	})
}

// TestNothingIsRefusedFromBeforeAReset: the owner refuses while the reset is on its way to it. Once
// the reset is acknowledged, the node does not repeat that refusal.
func TestNothingIsRefusedFromBeforeAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := true
		peers := &others{acquire: func(op *twotier.Op, res *twotier.Result) {
			res.Reset()
			c, limit := res.AddCheck(), op.Checks[0].Limits[0]
			c.Limits = append(c.Limits, twotier.LimitResult{Window: limit.Window, Max: limit.Max})
			if res.Allowed = !full; full {
				c.Refused, c.RetryAfter, res.RetryAfter = true, limit.Window, limit.Window
			}
		}}
		var n *node.Node
		var key []byte
		acquire := func() (allowed bool) {
			op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: key, N: 1,
				Limits: []twotier.Limit{{Window: 3_600_000, Max: 5}}}}}
			var res twotier.Result
			must.Succeed(t, n.Do(t.Context(), &op, &res))
			time.Sleep(10 * time.Millisecond) // by then it is remembered
			return res.Allowed
		}
		peers.respond = func(verb rpc.Verb) error {
			if verb == rpc.VerbReset && full { // of the key; that of its leases follows
				if acquire() {
					t.Error("allowed before the reset")
				}
				full = false
			}
			return nil
		}
		n, key = beside(t, &failing{}, peers)
		if acquire() {
			t.Error("allowed at the limit")
		}
		must.Succeed(t, n.Reset(t.Context(), nil, key))
		if !acquire() {
			t.Error("refused after the reset")
		}
	})
}

// TestTheNodeThatIsAskedSettlesTheAck forwards operations with the acknowledgement they wait for.
func TestTheNodeThatIsAskedSettlesTheAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []twotier.Ack
		peers := &others{ack: twotier.AckStore, acquire: func(op *twotier.Op, res *twotier.Result) {
			res.Reset()
			res.AddCheck()
			got = append(got, op.Ack)
		}}
		n, key := beside(t, &failing{}, peers)
		for _, op := range []twotier.Op{
			{Kind: twotier.Add}, {Kind: twotier.Add, Ack: twotier.AckMemory}, {Kind: twotier.Count},
		} {
			op.Checks = []twotier.Check{{Key: key, N: 1}}
			if err := n.Do(t.Context(), &op, new(twotier.Result)); err != nil {
				t.Error(err)
			}
		}
		want := []twotier.Ack{twotier.AckStore, twotier.AckMemory, twotier.AckDefault}
		if !slices.Equal(got, want) {
			t.Errorf("forwarded with %v, want %v", got, want)
		}
	})
}
