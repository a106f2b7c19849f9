package multiowner_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// node is a fake counter with one key and a limit, and its participant.
type node struct {
	*multiowner.Participant
	self ring.Member

	mu       sync.Mutex
	limit    int64
	counted  int64
	reserved map[string]int64
	fails    error // of DoAll
	bans     bool  // its key is banned, if the acquire checks for that
	slow     bool  // the store acknowledges nothing in time
	moved    bool  // it no longer owns the key
	acks     []twotier.Ack
	tookBack []time.Time // when counts were taken back at the key's owner

	idled atomic.Bool   // it reported Idle while it counted
	cut   atomic.Bool   // it can't be reached
	drops atomic.Bool   // messages to it are lost without an error
	still chan struct{} // if set, it starts nothing before this is closed
	loses atomic.Int64  // number of answers it loses, after the first keep of them
	keep  atomic.Int64
	asked atomic.Int64 // tasks from other nodes
	// before and after, if set, are called before and after each task.
	before func(task *rpc.Task)
	after  func()
}

// DoAll reserves, counts, or refuses.
func (n *node) DoAll(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range ops {
		res[i].Reset()
		res[i].Err = n.fails
		if n.moved && ops[i].Kind == twotier.Add {
			res[i].Err = twotier.ErrNotOwner
		}
		if res[i].Err == nil {
			n.do(&ops[i], &res[i])
		}
	}
}

func (n *node) do(op *twotier.Op, res *twotier.Result) {
	sum := int64(0)
	for i := range op.Checks {
		sum += op.Checks[i].N
	}
	all := n.counted + sum
	for _, r := range n.reserved {
		all += r
	}
	banned := false
	for i := range op.Checks {
		c := res.AddCheck()
		c.Limits = append(c.Limits, twotier.LimitResult{Count: all})
		c.Refused = n.bans && op.Checks[i].IsBan()
		banned = banned || c.Refused
	}
	res.Source = twotier.SourceMemory
	switch res.Allowed = all <= n.limit && !banned; {
	case !res.Allowed:
		res.RetryAfter = 70
	case op.Reserve != "":
		n.reserved[op.Reserve] = sum
	default:
		n.counted += sum
		n.acks = append(n.acks, op.Ack)
	}
}

// failWith makes takeBack fail, until it is called with nil.
func (n *node) failWith(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails = err
}

// takeBack takes a count back, unless failWith has set an error.
func (n *node) takeBack(_ context.Context, op *twotier.Op) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails != nil {
		return n.fails
	}
	n.counted += op.Checks[0].N
	n.tookBack = append(n.tookBack, time.Now())
	return nil
}

// move gives the keys to another node.
func (n *node) move() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.moved = true
}

// Confirm counts a reservation, which a slow store does not acknowledge in time.
func (n *node) Confirm(_ context.Context, op *twotier.Op) error {
	if n.Idle() {
		n.idled.Store(true)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counted += n.reserved[op.Reserve]
	delete(n.reserved, op.Reserve)
	n.acks = append(n.acks, op.Ack)
	if op.Ack == twotier.AckStore && n.slow {
		return twotier.ErrUnknownOutcome
	}
	return nil
}

func (n *node) Undo(op *twotier.Op) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.reserved[op.Reserve]
	delete(n.reserved, op.Reserve)
	return ok
}

// cluster is a set of directly linked nodes. The first one runs the acquires.
type cluster struct {
	nodes    []*node
	members  []ring.Member
	gone     atomic.Pointer[string] // the member that has left
	acquirer *multiowner.Acquirer
	answers  func() // called before an outcome is answered, if set
}

func (c *cluster) node(name string) *node {
	return c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n.self.Name == name })]
}

// Do has a node serve tasks, and loses its answers if configured.
func (c *cluster) Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []twotier.Result) {
	n := c.node(to.Name)
	for i := range tasks {
		n.asked.Add(1)
		if n.before != nil {
			n.before(&tasks[i])
		}
		if n.cut.Load() {
			res[i].Err = rpc.ErrUnreachable
			continue
		}
		if n.drops.Load() {
			res[i].Err = twotier.ErrUnknownOutcome
			continue
		}
		n.Serve(ctx, tasks[i:i+1], res[i:i+1])
		if n.after != nil {
			n.after()
		}
		if n.loses.Load() > 0 && n.keep.Add(-1) < 0 {
			n.loses.Add(-1)
			res[i].Reset()
			res[i].Err = twotier.ErrUnknownOutcome
		}
	}
}

// Ask sends a node a question about an outcome, or a request to settle.
func (c *cluster) Ask(ctx context.Context, to *ring.Member, request, response any) error {
	n := c.node(to.Name)
	if n.cut.Load() || n.drops.Load() {
		return rpc.ErrUnreachable
	}
	if q, ok := request.(*multiowner.SettleRequest); ok {
		return n.Settle(ctx, q)
	}
	a, err := n.Outcome(request.(*multiowner.OutcomeRequest))
	if answers := c.answers; answers != nil {
		answers()
	}
	*response.(*multiowner.OutcomeResponse) = *a
	return err
}

// newCluster returns nodes. The ones named in still stand still.
func newCluster(t *testing.T, size int, still ...string) *cluster {
	t.Helper()
	c := new(cluster)
	c.gone.Store(new(string))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range size {
		id := string(rune('a' + i))
		n := &node{self: ring.Member{ID: id, Name: id}, limit: 10, reserved: map[string]int64{},
			still: make(chan struct{})}
		if !slices.Contains(still, id) {
			close(n.still)
		}
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
			InRedis: func() bool { return false }, TakeBack: n.takeBack,
			Go: func(fn func(ctx context.Context)) { running.Go(func() { fn(ctx) }) },
		})
		running.Go(func() {
			select {
			case <-n.still:
				n.Run(ctx)
			case <-ctx.Done():
			}
		})
	}
	c.acquirer = multiowner.NewAcquirer(c.nodes[0].Participant)
	return c
}

// withNodes runs a story of nodes in a bubble.
func withNodes(t *testing.T, size int, story func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { story(t, newCluster(t, size)) })
}

// acquire acquires n at each of some nodes.
func (c *cluster) acquire(t *testing.T, n int64, at ...string) (*twotier.Result, error) {
	return c.acquireAck(t, twotier.AckMemory, n, at...)
}

// acquireAck also chooses the acknowledgement to wait for.
func (c *cluster) acquireAck(t *testing.T, ack twotier.Ack, n int64,
	at ...string) (*twotier.Result, error) {
	return c.acquireAs(t, twotier.Op{Ack: ack}, n, at...)
}

// acquireAs acquires with an operation that has no checks yet.
func (c *cluster) acquireAs(t *testing.T, as twotier.Op, n int64,
	at ...string) (*twotier.Result, error) {
	op := &as
	op.Kind = twotier.Acquire
	var parts []multiowner.Part
	for i, name := range at {
		op.Checks = append(op.Checks, twotier.Check{Key: []byte(name), N: n})
		p := multiowner.Part{Checks: []int{i}}
		if name != "a" {
			p.To = &c.node(name).self
		}
		parts = append(parts, p)
	}
	res := new(twotier.Result)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c.acquirer.Acquire(ctx, []multiowner.Request{{Op: op, Res: res, Parts: parts}})
	return res, res.Err
}

// patience is the deadline of acquires.
const patience = 2 * time.Second

// state returns the counts of each node, and the number of open reservations.
func (c *cluster) state() string {
	counted, waiting := []int64{}, 0
	for _, n := range c.nodes {
		n.mu.Lock()
		counted, waiting = append(counted, n.counted), waiting+len(n.reserved)
		n.mu.Unlock()
	}
	return fmt.Sprint(counted, waiting)
}

// asked returns the number of tasks sent to nodes.
func (c *cluster) asked() (n int64) {
	for _, o := range c.nodes {
		n += o.asked.Load()
	}
	return n
}
