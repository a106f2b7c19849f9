package multiowner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// node is a fake counter with one key and a limit, and the participant that reserves there.
type node struct {
	*multiowner.Participant
	self ring.Member

	mu       sync.Mutex
	limit    int64
	counted  int64
	reserved map[string]int64
	fails    error // of Reserve

	idled atomic.Bool  // it reported Idle while it counted
	cut   atomic.Bool  // it can't be reached
	loses atomic.Int64 // it loses so many answers, after the first keep of them
	keep  atomic.Int64
}

func (n *node) Reserve(_ context.Context, id string, op *syncer.Op, res *syncer.Result) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails != nil {
		return n.fails
	}
	waiting := int64(0)
	for _, r := range n.reserved {
		waiting += r
	}
	res.Reset()
	res.Allowed, res.Source = true, syncer.SourceMemory
	sum := int64(0)
	for i := range op.Checks {
		sum += op.Checks[i].N
	}
	for range op.Checks {
		c := res.AddCheck()
		c.Limits = append(c.Limits, syncer.LimitResult{Count: n.counted + waiting + sum})
	}
	if n.counted+waiting+sum > n.limit {
		res.Allowed, res.RetryAfter = false, 70
		return nil
	}
	n.reserved[id] = sum
	return nil
}

func (n *node) Confirm(_ context.Context, id string, _ syncer.Ack) error {
	if n.Idle() {
		n.idled.Store(true)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counted += n.reserved[id]
	delete(n.reserved, id)
	return nil
}

func (n *node) Undo(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.reserved[id]
	delete(n.reserved, id)
	return ok
}

// cluster is nodes that are linked directly. The first one runs the acquires.
type cluster struct {
	nodes    []*node
	members  []ring.Member
	gone     atomic.Pointer[string] // the member that has left
	acquirer *multiowner.Acquirer
}

func (c *cluster) node(name string) *node {
	return c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n.self.Name == name })]
}

// Do lets a node serve tasks, and loses its answers if configured.
func (c *cluster) Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []syncer.Result) {
	n := c.node(to.Name)
	for i := range tasks {
		if n.cut.Load() {
			res[i].Err = rpc.ErrUnreachable
			continue
		}
		res[i].Err = n.Serve(ctx, &tasks[i], &res[i])
		if n.loses.Load() > 0 && n.keep.Add(-1) < 0 {
			n.loses.Add(-1)
			res[i].Err = syncer.ErrUnknownOutcome
		}
	}
}

// Ask asks a node for an outcome.
func (c *cluster) Ask(_ context.Context, to *ring.Member, request, response any) error {
	n := c.node(to.Name)
	if n.cut.Load() {
		return rpc.ErrUnreachable
	}
	a, err := n.Outcome(request.(*multiowner.OutcomeRequest))
	*response.(*multiowner.OutcomeResponse) = *a
	return err
}

func newCluster(t *testing.T, size int) *cluster {
	t.Helper()
	c := new(cluster)
	c.gone.Store(new(string))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range size {
		id := string(rune('a' + i))
		n := &node{self: ring.Member{ID: id, Name: id}, limit: 10, reserved: map[string]int64{}}
		c.nodes, c.members = append(c.nodes, n), append(c.members, n.self)
		n.Participant = multiowner.NewParticipant(multiowner.Options{
			Self: func() string { return id }, Counter: n, Peers: c,
			Table: func() *ring.Table {
				present := slices.DeleteFunc(slices.Clone(c.members), func(m ring.Member) bool {
					return m.Name == *c.gone.Load()
				})
				table, err := ring.NewTable(present, id, 11, 0)
				if err != nil {
					panic(err)
				}
				return table
			},
			InRedis: func() bool { return false },
			Go:      func(fn func(ctx context.Context)) { running.Go(func() { fn(ctx) }) },
		})
		running.Go(func() { n.Run(ctx) })
	}
	c.acquirer = multiowner.NewAcquirer(c.nodes[0].Participant)
	return c
}

// acquire acquires n at each of some nodes.
func (c *cluster) acquire(t *testing.T, n int64, at ...string) (*syncer.Result, error) {
	op := &syncer.Op{Kind: syncer.Acquire}
	var parts []multiowner.Part
	for i, name := range at {
		op.Checks = append(op.Checks, syncer.Check{Key: []byte(name), N: n})
		p := multiowner.Part{Checks: []int{i}}
		if name != "a" {
			p.To = &c.node(name).self
		}
		parts = append(parts, p)
	}
	res := new(syncer.Result)
	err := c.acquirer.Acquire(t.Context(), op, res, parts)
	return res, err
}

// state returns what each node has counted, and how many reservations wait.
func (c *cluster) state() string {
	counted, waiting := []int64{}, 0
	for _, n := range c.nodes {
		n.mu.Lock()
		counted, waiting = append(counted, n.counted), waiting+len(n.reserved)
		n.mu.Unlock()
	}
	return fmt.Sprint(counted, waiting)
}

// TestAllOrNothing acquires at three nodes, including the one that runs the acquire or not, until
// one has no more.
func TestAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].limit = 5
		for _, step := range []struct {
			at      []string
			allowed bool
			state   string
		}{
			{[]string{"c", "b", "a"}, true, "[3 3 3] 0"},
			{[]string{"a", "b"}, false, "[3 3 3] 0"},
			{[]string{"a", "c"}, true, "[6 3 6] 0"},
			{[]string{"c", "b"}, false, "[6 3 6] 0"},
		} {
			res, err := c.acquire(t, 3, step.at...)
			synctest.Wait() // undo runs in the background
			if err != nil || res.Allowed != step.allowed || c.state() != step.state {
				t.Errorf("at %v: allowed %v, %v, state %s, want %+v", step.at, res.Allowed, err,
					c.state(), step)
			}
			if len(res.Checks) != len(step.at) {
				t.Errorf("at %v: %d checks are answered", step.at, len(res.Checks))
			}
		}
		for _, n := range c.nodes {
			if n.idled.Load() || !n.Idle() {
				t.Errorf("%s is idle while it counts: %v, and afterwards: %v", n.self.Name,
					n.idled.Load(), n.Idle())
			}
		}
	})
}

// TestRefusedShowsWhatIsCounted: the count of a part that was admitted by itself and then undone
// does not include it.
func TestRefusedShowsWhatIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.nodes[1].limit = 2
		res, err := c.acquire(t, 3, "b", "a")
		if err != nil || res.Allowed || res.RetryAfter != 70 {
			t.Fatalf("%+v, %v", res, err)
		}
		if got := res.Checks[1].Limits[0].Count; got != 0 {
			t.Errorf("a's count is %d although nothing was counted", got)
		}
	})
}

// TestErrorsOfParts returns the right error for an acquire that one node could not decide about:
// nothing is counted anywhere.
func TestErrorsOfParts(t *testing.T) {
	invalid := &syncer.InvalidError{Check: 0, Limit: -1, Field: "key"}
	for name, test := range map[string]struct {
		err  error
		want func(err error) bool
	}{
		"moved": {&rpc.MovedError{}, func(err error) bool {
			return errors.Is(err, syncer.ErrNotOwner)
		}},
		"unknown": {syncer.ErrUnknownOutcome, func(err error) bool {
			// The other reservations are undone, so that it may be tried again.
			return errors.Is(err, syncer.ErrNotOwner)
		}},
		"full": {syncer.ErrFull, func(err error) bool { return errors.Is(err, syncer.ErrFull) }},
		"unreachable": {rpc.ErrUnreachable, func(err error) bool {
			u, ok := errors.AsType[*multiowner.UnreachableError](err)
			return ok && len(u.Parts) == 1 && u.Parts[0].To.Name == "b" &&
				errors.Is(err, rpc.ErrUnreachable)
		}},
		"invalid": {invalid, func(err error) bool {
			i, ok := errors.AsType[*syncer.InvalidError](err)
			return ok && i.Check == 1 && invalid.Check == 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2)
				c.nodes[1].fails = test.err
				_, err := c.acquire(t, 1, "a", "b")
				synctest.Wait()
				if !test.want(err) || c.state() != "[0 0] 0" {
					t.Errorf("%v, state %s", err, c.state())
				}
			})
		})
	}
}

// TestLostConfirmationIsAskedFor: the answer of a coordinator that confirmed is lost, or that of an
// owner told after it: soon all have counted.
func TestLostConfirmationIsAskedFor(t *testing.T) {
	for _, loser := range []string{"b", "c"} { // b coordinates
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3)
			n := c.node(loser)
			n.keep.Store(1) // the reservation is answered
			n.loses.Store(1)
			if _, err := c.acquire(t, 1, "b", "c"); !errors.Is(err, syncer.ErrUnknownOutcome) {
				t.Errorf("%s loses: %v", loser, err)
			}
			time.Sleep(500 * time.Millisecond) // before any owner asks the coordinator
			if c.state() != "[0 1 1] 0" {
				t.Errorf("%s loses: state %s", loser, c.state())
			}
		})
	}
}

// TestReservationWithoutAnEnd: the node that runs an acquire dies after all have reserved. The
// first owner to ask the coordinator makes it undo, and a later confirmation is refused.
func TestReservationWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		reserve := rpc.Task{Verb: rpc.VerbReserve, Reservation: "r", Coordinator: "b",
			Op: syncer.Op{Kind: syncer.Acquire, Checks: []syncer.Check{{Key: []byte("k"), N: 1}}}}
		for _, n := range c.nodes[1:] {
			if err := n.Serve(t.Context(), &reserve, new(syncer.Result)); err != nil {
				t.Fatal(err)
			}
			if n.Idle() {
				t.Error("idle with a reservation")
			}
		}
		time.Sleep(3 * time.Second)
		if c.state() != "[0 0 0] 0" || !c.nodes[1].Idle() {
			t.Errorf("state %s", c.state())
		}
		confirm := rpc.Task{Verb: rpc.VerbConfirm, Reservation: "r", Coordinator: "b"}
		if err := c.nodes[1].Serve(t.Context(), &confirm, new(syncer.Result)); err == nil {
			t.Error("confirmed after others were told that it is not")
		}
	})
}

// TestAskedBeforeItIsReserved: the coordinator is asked about a reservation that is still on its
// way to it. It answers that it is not confirmed, so it never will be.
func TestAskedBeforeItIsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newCluster(t, 2).nodes[1]
		a, err := n.Outcome(&multiowner.OutcomeRequest{Reservation: "r"})
		if err != nil || a.Confirmed {
			t.Fatal(a, err)
		}
		reserve := rpc.Task{Verb: rpc.VerbReserve, Reservation: "r", Coordinator: "b",
			Op: syncer.Op{Kind: syncer.Acquire, Checks: []syncer.Check{{Key: []byte("k"), N: 1}}}}
		if err := n.Serve(t.Context(), &reserve, new(syncer.Result)); err != nil {
			t.Fatal(err)
		}
		confirm := rpc.Task{Verb: rpc.VerbConfirm, Reservation: "r", Coordinator: "b"}
		if err := n.Serve(t.Context(), &confirm, new(syncer.Result)); err == nil {
			t.Error("confirmed after another was told that it is not")
		}
	})
}

// TestCoordinatorThatLeft before it decided: the others undo at once. A coordinator that can't be
// reached is asked for ten seconds.
func TestCoordinatorThatLeft(t *testing.T) {
	for name, test := range map[string]struct {
		harm  func(c *cluster)
		after time.Duration
	}{
		"left": {func(c *cluster) {
			name := "b"
			c.gone.Store(&name)
			c.nodes[1].cut.Store(true)
		}, 2 * time.Second},
		"unreachable": {func(c *cluster) { c.nodes[1].cut.Store(true) }, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				reserve := rpc.Task{Verb: rpc.VerbReserve, Reservation: "r", Coordinator: "b",
					Op: syncer.Op{Kind: syncer.Acquire,
						Checks: []syncer.Check{{Key: []byte("k"), N: 1}}}}
				if err := c.nodes[2].Serve(t.Context(), &reserve, new(syncer.Result)); err != nil {
					t.Fatal(err)
				}
				test.harm(c)
				time.Sleep(test.after - 1100*time.Millisecond)
				if c.state() != "[0 0 0] 1" {
					t.Errorf("state %s before the time is up", c.state())
				}
				time.Sleep(1100 * time.Millisecond)
				if c.state() != "[0 0 0] 0" {
					t.Errorf("state %s after %v", c.state(), test.after)
				}
			})
		})
	}
}

// TestConfirmedTooLate: a confirmation that arrives after its deadline is not counted.
func TestConfirmedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		reserve := rpc.Task{Verb: rpc.VerbReserve, Reservation: "r", Coordinator: "b",
			Op: syncer.Op{Kind: syncer.Acquire, Checks: []syncer.Check{{Key: []byte("k"), N: 1}}}}
		if err := c.nodes[1].Serve(t.Context(), &reserve, new(syncer.Result)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		confirm := rpc.Task{Verb: rpc.VerbConfirm, Reservation: "r", Coordinator: "b"}
		if err := c.nodes[1].Serve(ctx, &confirm, new(syncer.Result)); !errors.Is(err,
			syncer.ErrUnavailable) || c.state() != "[0 0] 1" {
			t.Errorf("%v, state %s", err, c.state())
		}
	})
}
