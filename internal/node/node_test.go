package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// still is a store whose clock is the node's.
type still struct{}

func (still) ClockAhead(context.Context, func() time.Time) (time.Duration, error) { return 0, nil }
func (still) Health() cluster.StoreHealth {
	return cluster.StoreHealth{Up: true}
}

// resetting fakes a Redis that only resets keys, in a counter's store.
type resetting struct {
	node.Direct
	store *embedded.Store
	seq   uint64
}

func (d *resetting) Forget(ctx context.Context, ns, key []byte) error {
	d.seq++
	d.store.Exchange(ctx, []*syncer.Round{{Writer: "direct", Seq: d.seq,
		Keys: []syncer.KeyRound{{NS: ns, Key: key, Reset: true}}}})
	return nil
}

func (d *resetting) DoAll(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].AddCheck()
	}
}

// alone returns a node without a cluster.
func alone(t testing.TB, opt node.Options) *node.Node {
	t.Helper()
	opt.ID, opt.Store, opt.Placement = "n", still{}, twotier.Placement{Partitions: 1}
	if opt.Clock == nil {
		opt.Clock = storeclock.New(nil, nil)
	}
	if opt.Direct == nil {
		opt.Direct = &resetting{store: embedded.New(embedded.Options{})}
	}
	var err error
	opt.Counter, err = syncer.New(syncer.Options{
		Store: opt.Direct.(*resetting).store, Now: opt.Clock.Now, Placement: opt.Placement,
	})
	must.Succeed(t, err)
	n, err := node.New(opt)
	if err == nil {
		err = n.Open(t.Context(), "")
	}
	must.Succeed(t, err)
	return n
}

// TestClockAfterASuspension suspends the machine: the node's time includes the suspension before
// the store is asked, and does not take it for a step of the store's clock.
func TestClockAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		clock := storeclock.New(nil, nil)
		n := alone(t, node.Options{Clock: clock, ClockInterval: time.Hour,
			Asleep: func() time.Duration { return time.Duration(slept.Load()) }})
		before := clock.Now()
		slept.Store(int64(40 * time.Minute))
		time.Sleep(2 * time.Second)
		if got, want := clock.Now()-before,
			(40*time.Minute + 2*time.Second).Milliseconds(); got != want {
			t.Errorf("%d ms have passed, want %d", got, want)
		}
		if ahead, _ := clock.Offset(); ahead != 0 {
			t.Errorf("the store is taken to be ahead by %v", ahead)
		}
		must.Succeed(t, n.Close(context.Background()))
	})
}

// TestResetInRedisModeOutlivesALoss counts a key in memory, resets it in Redis mode, and makes the
// store lose everything: the node does not restore the key.
func TestResetInRedisModeOutlivesALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &resetting{store: embedded.New(embedded.Options{})}
		n := alone(t, node.Options{Direct: d})
		for _, key := range []string{"reset", "kept"} {
			op := twotier.Op{Ack: twotier.AckStore, Checks: []twotier.Check{{Key: []byte(key),
				N: 5}}}
			must.Succeed(t, n.Do(t.Context(), &op, new(twotier.Result)))
		}
		must.Succeed(t, n.SetMode(t.Context(), cluster.Redis))
		must.Succeed(t, n.Reset(t.Context(), nil, []byte("reset")))
		d.store.Flush()
		time.Sleep(time.Minute)
		if got := d.store.Get(0, nil, []byte("kept")); len(got) == 0 {
			t.Error("nothing was restored")
		}
		if got := d.store.Get(0, nil, []byte("reset")); len(got) > 0 {
			t.Errorf("a key that was reset is there again: %v", got)
		}
		must.Succeed(t, n.Close(context.Background()))
	})
}

// pinged is the only other process. It answers pings with answers in turn; rpc.ErrLate, and any
// ping after the last answer, waits for the timeout.
type pinged struct {
	others
	answers []error
	asked   int
}

func (p *pinged) Ask(ctx context.Context, _ *ring.Member, _, _ any) error {
	p.asked++
	if p.asked <= len(p.answers) && !errors.Is(p.answers[p.asked-1], rpc.ErrLate) {
		return p.answers[p.asked-1]
	}
	<-ctx.Done()
	return rpc.ErrLate
}

// TestATwinMayMissOnePing starts a node under the name of a process that is alive, is gone, or does
// not answer in time: either once, as when a machine stands still for a moment, or always.
func TestATwinMayMissOnePing(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error
		alive   bool
		pings   int
	}{
		"alive":  {[]error{nil}, true, 1},
		"late":   {[]error{rpc.ErrLate, nil}, true, 2},
		"gone":   {[]error{fmt.Errorf("dial: %w", rpc.ErrUnreachable)}, false, 1},
		"silent": {nil, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peers := &pinged{answers: c.answers}
				err := openTwin(t, peers)
				if refused := errors.Is(err, ring.ErrRefused); refused != c.alive ||
					err != nil && !refused || peers.asked != c.pings {
					t.Errorf("after %d pings: %v", peers.asked, err)
				}
			})
		})
	}
}

// openTwin opens a node in a cluster that has another process with its name.
func openTwin(t *testing.T, peers node.Peers) error {
	t.Helper()
	rings := ringsOf(t, []string{"n", "n"}, nil)
	must.Succeed(t, rings[0].Open(t.Context(), "10.0.0.1:8080"))
	rings[0].Enter(t.Context())
	clock, place := storeclock.New(nil, nil), twotier.Placement{Partitions: 7}
	counter, err := syncer.New(syncer.Options{
		Store: embedded.New(embedded.Options{}), Now: clock.Now, Placement: place, NotOwner: true,
	})
	must.Succeed(t, err)
	n, err := node.New(node.Options{ID: "n", Mode: cluster.TwoTier, Counter: counter, Peers: peers,
		Ring: rings[1], Store: still{}, Clock: clock, Placement: place})
	must.Succeed(t, err)
	closeBoth(t, n, rings[0])
	return n.Open(t.Context(), "10.0.0.2:8080")
}

// refusing returns a function that makes a node refuse an acquire as an endpoint does, and count
// its verdict.
func refusing(t testing.TB, n *node.Node) func() {
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("alice"), N: 1,
		Limits: []twotier.Limit{{Window: 60_000}}}}}
	var res twotier.Result
	var run verdicts.Run
	counters, of := n.Verdicts(), &verdicts.Arrival{Endpoint: verdicts.HTTP}
	return func() {
		must.Succeed(t, n.Do(t.Context(), &op, &res))
		run.Begin(counters, of)
		run.BeginDecision()
		run.BeginCheck()
		run.CountCheck(&op, 0, &res, nil)
		if run.RefusalID().IsZero() {
			t.Fatal("the refusal has no id")
		}
		run.End(0)
	}
}

// TestRefusalsReachTheSinks: a refusal is in the metrics, the log of refusals and the list of
// refused keys, and takes no memory.
func TestRefusalsReachTheSinks(t *testing.T) {
	n := alone(t, node.Options{})
	defer func() { must.Succeed(t, n.Close(context.Background())) }()
	refuse := refusing(t, n)
	for range 99 {
		refuse()
	}
	if allocations := testing.AllocsPerRun(99, refuse); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
	const times = 199
	rows, err := n.Top(t.Context(), "refused", "", 9, 60_000)
	if want := []twotier.KeyCount{{NS: "default", Key: "alice", Count: times}}; err != nil ||
		!slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
	if rows := n.Verdicts().Rows(); len(rows) != 1 || rows[0].Totals[twotier.Refused] != times {
		t.Errorf("%+v", rows)
	}
	list := n.Refusals(t.Context(), nil, []byte("alice"), 9)
	if len(list) == 0 || list[0].Door != verdicts.HTTP {
		t.Errorf("%+v", list)
	}
}

// BenchmarkRefusal refuses an acquire and counts its verdict.
func BenchmarkRefusal(b *testing.B) {
	n := alone(b, node.Options{})
	defer func() { must.Succeed(b, n.Close(context.Background())) }()
	refuse := refusing(b, n)
	b.ReportAllocs()
	for b.Loop() {
		refuse()
	}
}

// TestRequestKindsDiffer: no two kinds of requests share a number or a name.
func TestRequestKindsDiffer(t *testing.T) {
	codes, names := map[byte]bool{}, map[string]bool{}
	for _, kind := range node.RequestKinds() {
		if codes[kind.Code] || names[kind.Name] {
			t.Errorf("there are two of number %d or name %q", kind.Code, kind.Name)
		}
		codes[kind.Code], names[kind.Name] = true, true
	}
}
