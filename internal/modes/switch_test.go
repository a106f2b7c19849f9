package modes_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
)

// node fakes the parts that a change stops and resumes.
type node struct {
	*modes.Switch
	self    ring.Member
	c       *cluster
	flushes func() error
	busy    atomic.Bool // a reservation is open
	cut     atomic.Bool // it can't be reached
	deaf    atomic.Bool // it does not get the result of a change
	tag     atomic.Pointer[string]
}

func (n *node) Suspend()          { n.c.note(n, "suspend") }
func (n *node) DiscardSuspended() { n.c.note(n, "forget") }
func (n *node) Resume()           { n.c.note(n, "resume") }
func (n *node) WakeWaiters()      {}

// cluster is three nodes whose switches are linked directly.
type cluster struct {
	t      *testing.T
	nodes  []*node
	hidden atomic.Bool // the last node is in no table

	mu    sync.Mutex
	story []string // the calls to the nodes, in order
}

func (c *cluster) note(n *node, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.story = append(c.story, n.self.ID+" "+what)
}

// Ask passes a step of a change from one node to another.
func (c *cluster) Ask(ctx context.Context, to *ring.Member, request, _ any) error {
	q := request.(*modes.Request)
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.self.Name == to.Name })
	if n := c.nodes[i]; !n.cut.Load() && !(n.deaf.Load() && q.Phase != modes.Prepare) {
		return n.Step(ctx, q)
	}
	return rpc.ErrUnreachable
}

// table returns the members with the tags that they announce.
func (c *cluster) table(self string) *ring.Table {
	var members []ring.Member
	for i, n := range c.nodes {
		if i == 2 && c.hidden.Load() {
			continue
		}
		m := n.self
		m.Tag = *n.tag.Load()
		members = append(members, m)
	}
	t, err := ring.NewTable(members, self, 11, 0)
	if err != nil {
		panic(err)
	}
	return t
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i, id := range []string{"a", "b", "c"} {
		n := &node{self: ring.Member{ID: id, Name: id, Born: int64(i)}, c: c}
		tag := modes.Tag(modes.TwoTier)
		n.tag.Store(&tag)
		n.Switch = modes.New(modes.Options{
			Mode: modes.TwoTier, Switchable: true, Peers: c, Ownership: n,
			Table:    func() *ring.Table { return c.table(id) },
			Self:     func() ring.Member { return n.self },
			Idle:     func() bool { return !n.busy.Load() },
			Announce: func(_ context.Context, tag string) error { n.tag.Store(&tag); return nil },
			Flush: func(context.Context) error {
				c.note(n, "flush")
				if n.flushes != nil {
					return n.flushes()
				}
				return nil
			},
			Go: func(fn func(ctx context.Context)) { running.Go(func() { fn(ctx) }) },
		})
		c.nodes = append(c.nodes, n)
	}
	return c
}

// withNodes runs a story of three nodes in a bubble.
func withNodes(t *testing.T, story func(t *testing.T, c *cluster, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		story(t, c, c.nodes[0])
	})
}

// prepare has a node prepare for a change of the first term to Redis.
func prepare(n *node, by string) error {
	return n.Step(n.c.t.Context(), &modes.Request{By: by, Mode: modes.Redis, Term: 1})
}

// modes returns the modes of all nodes, each by its first letter.
func (c *cluster) modes() string {
	var b strings.Builder
	for _, n := range c.nodes {
		b.WriteByte(n.Mode()[0])
	}
	return b.String()
}

// resumed reports whether operations go on at all nodes.
func (c *cluster) resumed() bool {
	for _, n := range c.nodes {
		if !n.Enter(n.Mode()) {
			return false
		}
		n.Leave()
	}
	return true
}

// TestChangeHasAllInTheStoreFirst changes the mode twice: no node goes on before the last one has
// flushed, and earlier ownership does not carry over.
func TestChangeHasAllInTheStoreFirst(t *testing.T) {
	withNodes(t, func(t *testing.T, c *cluster, _ *node) {
		if err := c.nodes[1].Change(t.Context(), modes.Redis); err != nil || c.modes() != "rrr" {
			t.Fatalf("modes %s, %v", c.modes(), err)
		}
		first := slices.IndexFunc(c.story, func(s string) bool {
			return strings.HasSuffix(s, "forget")
		})
		flushed := 0
		for _, s := range c.story[:first] {
			if strings.HasSuffix(s, "flush") {
				flushed++
			}
		}
		if flushed != 3 ||
			slices.ContainsFunc(c.story, func(s string) bool {
				return strings.HasSuffix(s, "resume")
			}) {
			t.Errorf("what happened: %v", c.story)
		}
		if err := c.nodes[2].Change(t.Context(), modes.TwoTier); err != nil || c.modes() != "ttt" ||
			!c.resumed() {
			t.Errorf("back again: modes %s, %v", c.modes(), err)
		}
		if last := c.story[len(c.story)-2:]; !strings.HasSuffix(last[1], "resume") ||
			!strings.HasSuffix(last[0], "forget") {
			t.Errorf("the last that happened: %v", last)
		}
		synctest.Wait()
		if tag := *c.nodes[0].tag.Load(); tag != "two-tier 2" {
			t.Errorf("gossips %q", tag)
		}
	})
}

// TestWhoJoinsDuringAChange: the node that changes the mode does not know of c yet when it has the
// others prepare. c prepares, too, before any node goes on.
func TestWhoJoinsDuringAChange(t *testing.T) {
	for name, test := range map[string]struct {
		flushes func() error
		modes   string
	}{
		"it prepares": {nil, "rrr"},
		"it can't":    {func() error { return errors.New("down") }, "ttt"},
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, func(t *testing.T, c *cluster, _ *node) {
				c.hidden.Store(true)
				c.nodes[2].flushes = test.flushes
				c.nodes[1].flushes = func() error { c.hidden.Store(false); return nil }
				err := c.nodes[0].Change(t.Context(), modes.Redis)
				if c.modes() != test.modes || !c.resumed() ||
					(err == nil) != (test.flushes == nil) {
					t.Errorf("modes %s, want %s; %v", c.modes(), test.modes, err)
				}
				at := func(what string) int { return slices.Index(c.story, what) }
				if flushed, gone := at("c flush"), at("a forget"); flushed < 0 ||
					gone >= 0 && gone < flushed {
					t.Errorf("what happened: %v", c.story)
				}
			})
		})
	}
}

// TestChangeIsAllOrNothing covers a node that can't be reached, fails to flush, or holds a
// reservation for too long: all nodes go on as before.
func TestChangeIsAllOrNothing(t *testing.T) {
	for name, harm := range map[string]func(n *node){
		"unreachable": func(n *node) { n.cut.Store(true) },
		"flush fails": func(n *node) {
			n.flushes = func() error { return errors.New("down") }
		},
		"reserved for 6 s": func(n *node) { n.busy.Store(true) },
		"in flight":        func(n *node) { n.Enter(modes.TwoTier) },
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, func(t *testing.T, c *cluster, _ *node) {
				harm(c.nodes[2])
				if err := c.nodes[0].Change(t.Context(), modes.Redis); err == nil {
					t.Error("changed")
				}
				if c.modes() != "ttt" || !c.resumed() {
					t.Errorf("modes %s, operations go on: %v", c.modes(), c.resumed())
				}
			})
		})
	}
}

// TestOperationsWaitForTheEnd of a change, and a change waits for operations that have begun.
func TestOperationsWaitForTheEnd(t *testing.T) {
	withNodes(t, func(t *testing.T, c *cluster, n *node) {
		if !n.Enter(modes.TwoTier) || n.Enter(modes.Redis) {
			t.Fatal("entered the wrong mode, or not the right one")
		}
		changed := make(chan error)
		go func() { changed <- n.Change(t.Context(), modes.Redis) }()
		synctest.Wait()
		if n.Enter(modes.TwoTier) {
			t.Error("an operation began during the change")
		}
		waited := make(chan error)
		go func() { waited <- n.Await(t.Context()) }()
		time.Sleep(time.Second)
		if n.InRedis() {
			t.Fatal("changed while an operation was under way")
		}
		n.Leave()
		if err := errors.Join(<-changed, <-waited); err != nil || !n.InRedis() {
			t.Errorf("%v, mode %s", err, n.Mode())
		}
		none := func() error { t.Error("carried out in the wrong mode"); return nil }
		if err := n.During(t.Context(), modes.TwoTier, none); !errors.Is(err, modes.ErrChanged) {
			t.Errorf("in the mode before: %v", err)
		}
		once := errors.New("carried out")
		err := n.During(t.Context(), modes.Redis, func() error { return once })
		if !errors.Is(err, once) {
			t.Errorf("nothing is carried out after the change: %v", err)
		}
	})
}

// TestAwaitGivesUp after three seconds, or with its context.
func TestAwaitGivesUp(t *testing.T) {
	withNodes(t, func(t *testing.T, _ *cluster, n *node) {
		must.Succeed(t, prepare(n, "x"))
		began := time.Now()
		if err := n.Await(t.Context()); !errors.Is(err, twotier.ErrUnavailable) ||
			time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Await(ctx); err == nil || time.Since(began) != 4*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestTwoChangesOfOneTerm begins two changes of the same term: the end of one does not end the
// other.
func TestTwoChangesOfOneTerm(t *testing.T) {
	withNodes(t, func(t *testing.T, _ *cluster, n *node) {
		must.Succeed(t, prepare(n, "x"))
		if err := prepare(n, "y"); !errors.Is(err, twotier.ErrUnavailable) {
			t.Errorf("the second: %v, want it refused", err)
		}
		if err := n.Step(t.Context(),
			&modes.Request{By: "y", Term: 1, Phase: modes.Abort}); err != nil ||
			n.Enter(modes.TwoTier) {
			t.Errorf("the end of the second, which never began, ended the first: %v", err)
		}
	})
}

// TestAChangeThatIsTriedAgain gets a full waiting time: the node does not go on when the time of
// the first attempt, which was given up, would have ended.
func TestAChangeThatIsTriedAgain(t *testing.T) {
	withNodes(t, func(t *testing.T, _ *cluster, n *node) {
		step := func(phase modes.Phase) {
			q := modes.Request{By: "x", Mode: modes.Redis, Term: 1, Phase: phase}
			must.Succeed(t, n.Step(t.Context(), &q))
		}
		goesOn := func() bool {
			on := n.Enter(modes.TwoTier)
			if on {
				n.Leave()
			}
			return on
		}
		step(modes.Prepare)
		time.Sleep(time.Second)
		step(modes.Abort)
		if !goesOn() {
			t.Error("a change that is given up is not over")
		}
		time.Sleep(modes.PreparedTime - 2*time.Second)
		step(modes.Prepare)
		time.Sleep(modes.PreparedTime - time.Second)
		if goesOn() {
			t.Error("the end of the first attempt is taken for that of the second")
		}
		time.Sleep(2 * time.Second)
		if !goesOn() {
			t.Error("nobody said how it ended, and the node waits for ever")
		}
	})
}

// TestNobodySaysHowAChangeEnds: the node goes on as before, and learns the result by gossip.
func TestNobodySaysHowAChangeEnds(t *testing.T) {
	withNodes(t, func(t *testing.T, c *cluster, _ *node) {
		c.nodes[2].deaf.Store(true)
		if err := c.nodes[0].Change(t.Context(), modes.Redis); err != nil || c.modes() != "rrt" {
			t.Fatalf("modes %s, %v", c.modes(), err)
		}
		time.Sleep(modes.PreparedTime + time.Millisecond)
		synctest.Wait()
		if c.modes() != "rrt" || !c.resumed() {
			t.Errorf("modes %s, operations go on: %v", c.modes(), c.resumed())
		}
		c.story = nil
		c.nodes[2].FollowMembers()
		synctest.Wait()
		if c.modes() != "rrr" || !c.resumed() {
			t.Errorf("modes %s after gossip, operations go on: %v", c.modes(), c.resumed())
		}
		if want := []string{"c suspend", "c flush", "c forget"}; !slices.Equal(c.story, want) {
			t.Errorf("after gossip: %v, want %v: it has counted since it prepared", c.story, want)
		}
	})
}

// TestCloseDuringAChangeOfMode closes a node that wants to give up an unfinished change while a
// step of another change is under way and outlasts the node. If the node waited for that step, the
// bubble would deadlock.
func TestCloseDuringAChangeOfMode(t *testing.T) {
	withNodes(t, func(t *testing.T, _ *cluster, n *node) { // closed when the test ends
		must.Succeed(t, prepare(n, "x"))
		must.Succeed(t, n.Hold(t.Context()))
		time.Sleep(modes.PreparedTime + time.Second)
	})
}

// TestFollowsWhoWasThereFirst covers members of one term with different modes.
func TestFollowsWhoWasThereFirst(t *testing.T) {
	withNodes(t, func(t *testing.T, c *cluster, _ *node) {
		other := modes.Tag(modes.Redis)
		c.nodes[1].tag.Store(&other)
		c.nodes[0].FollowMembers() // older than b
		c.nodes[2].FollowMembers() // younger
		synctest.Wait()
		if c.modes() != "ttr" {
			t.Errorf("modes %s, want ttr", c.modes())
		}
	})
}

// TestModesThatAreRefused fails before anything is stopped.
func TestModesThatAreRefused(t *testing.T) {
	n := newCluster(t).nodes[0]
	if err := n.Change(t.Context(), "fast"); !errors.As(err, new(*twotier.InvalidError)) {
		t.Errorf("an unknown mode: %v", err)
	}
	if err := n.Change(t.Context(), modes.TwoTier); err != nil || len(n.c.story) > 0 {
		t.Errorf("the present mode: %v, %v", err, n.c.story)
	}
	fixed := modes.New(modes.Options{Mode: modes.TwoTier})
	if err := fixed.Change(t.Context(), modes.Redis); !errors.As(err, new(*twotier.InvalidError)) {
		t.Errorf("a node that can't: %v", err)
	}
}

// TestNobodyStopsForAStoreThatIsDown: a change that can't succeed makes no operation wait.
func TestNobodyStopsForAStoreThatIsDown(t *testing.T) {
	up := false
	s := modes.New(modes.Options{Mode: modes.TwoTier, Switchable: true,
		StoreUp: func() bool { return up },
		Table:   func() *ring.Table { panic("it asks other nodes") }})
	if err := s.Change(t.Context(), modes.Redis); !errors.Is(err, twotier.ErrUnavailable) ||
		!strings.Contains(err.Error(), "the mode stays two-tier: Redis can't be reached") {
		t.Error(err)
	}
	if s.InRedis() {
		t.Error("it has changed")
	}
}

func TestTags(t *testing.T) {
	for tag, want := range map[string]modes.Mode{
		"two-tier 0": modes.TwoTier, "redis 7": modes.Redis, modes.Tag(modes.Redis): modes.Redis,
		"": "", "redis": "", "redis x": "", "redis -1": "", "fast 1": "",
	} {
		if mode, ok := modes.FromTag(tag); ok != (want != "") || ok && mode != want {
			t.Errorf("%q: %q, %v, want %q", tag, mode, ok, want)
		}
	}
}
