package ownership_test

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

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

const partitions = 64

// counter is a fake counter that can hand partitions over. A partition has a few keys, a page one.
type counter struct {
	mu    sync.Mutex
	state [partitions]state
	keys  [partitions][]string
	fails error // of BeginHandoff
	// before runs at the start of BeginHandoff.
	before func()
	// flush, if set, runs in Flush.
	flush func(ctx context.Context) error
}

// state is a counter's relation to a partition.
type state uint8

const (
	away state = iota
	owned
	neither // no node decides about it until the handoff begins
	ceded
)

func (c *counter) StartOwning(p int)    { c.set(p, owned) }
func (c *counter) StopOwning(p int)     { c.set(p, away) }
func (c *counter) RestartHandoff(p int) { c.set(p, neither) }

func (c *counter) set(p int, to state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state[p] = to
}

func (c *counter) Flush(ctx context.Context) error {
	if c.flush != nil {
		return c.flush(ctx)
	}
	return nil
}

func (c *counter) SetBorrowingPaused(bool) {}
func (c *counter) ForgetLoans()            {}

// fail makes BeginHandoff fail with an error, or succeed.
func (c *counter) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = err
}

func (c *counter) BeginHandoff(_ context.Context, p int) error {
	if c.before != nil {
		c.before()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state[p] == away {
		return twotier.ErrNotOwner
	}
	if c.state[p] = ceded; c.fails != nil {
		c.state[p] = neither
	}
	return c.fails
}

func (c *counter) HandoffPage(p int, cursor uint64, _ int) (*syncer.Handoff, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state[p] != ceded {
		return nil, 0, twotier.ErrNotOwner
	}
	h := &syncer.Handoff{Partition: p}
	if cursor < uint64(len(c.keys[p])) {
		h.Keys = append(h.Keys, syncer.KeyState{Key: []byte(c.keys[p][cursor])})
	}
	if cursor++; cursor >= uint64(len(c.keys[p])) {
		cursor = 0
	}
	return h, cursor, nil
}

func (c *counter) FinishHandoff(p int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state[p] != ceded {
		return errors.New("not ceded")
	}
	c.state[p], c.keys[p] = away, nil
	return nil
}

func (c *counter) ImportHandoff(h *syncer.Handoff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state[h.Partition] = owned
	for i := range h.Keys {
		key := string(h.Keys[i].Key)
		if keys := &c.keys[h.Partition]; !slices.Contains(*keys, key) {
			*keys = append(*keys, key)
		}
	}
}

func (c *counter) owns(p int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state[p] == owned
}

// node is a member with its own table, which it follows from time to time.
type node struct {
	*ownership.Partitions
	c       *cluster
	self    ring.Member
	counter counter
	leaves  bool // about to leave: no partition is assigned to it
	table   atomic.Pointer[ring.Table]
	inRedis atomic.Bool
	cut     atomic.Bool // it can't be reached
}

// cluster is a set of directly linked nodes.
type cluster struct {
	t     *testing.T
	nodes []*node
	delay func() time.Duration // of a request, and of its response
	// expired is the number of pages, not counting first pages, that prove out of date when
	// requested.
	expired atomic.Int64
	seeking atomic.Int64 // extra time, in ns, for an answer about holdings
	sought  atomic.Int64 // requests for holdings
	breaks  atomic.Int64 // how many more requests for holdings find a broken connection
	slow    atomic.Pointer[slow]
	// holdings, if set, answers requests for holdings in place of the nodes.
	holdings func(q *ownership.HoldingsRequest) *ownership.HoldingsResponse
}

// slow delays the requests for holdings sent to one member.
type slow struct {
	name string
	by   time.Duration
}

// Ask has a node respond to another node's request.
func (c *cluster) Ask(ctx context.Context, to *ring.Member, request, response any) error {
	n := c.node(to.Name)
	if _, ok := request.(*ownership.HoldingsRequest); ok {
		if slow := c.slow.Load(); slow != nil && slow.name == to.Name {
			time.Sleep(slow.by)
		}
	}
	if !c.travel(ctx) {
		return twotier.ErrUnknownOutcome
	}
	q, asks := request.(*ownership.HoldingsRequest)
	if asks && c.holdings != nil {
		*response.(*ownership.HoldingsResponse) = *c.holdings(q)
		return nil
	}
	if n.cut.Load() || asks && c.breaks.Add(-1) >= 0 {
		return rpc.ErrUnreachable
	}
	var h *ownership.HoldingsResponse
	var pages *ownership.ClaimResponse
	switch q := request.(type) {
	case *ownership.HoldingsRequest:
		c.sought.Add(1)
		h = n.Holdings(q)
		time.Sleep(time.Duration(c.seeking.Load()))
	case *ownership.ClaimRequest:
		pages = n.HandOff(ctx, q)
		c.expire(q, pages)
	case *ownership.OfferRequest:
		n.AcceptOffer(q)
	case *ownership.ReturnRequest:
		n.AcceptReturn(ctx, q)
	}
	if !c.travel(ctx) {
		return twotier.ErrUnknownOutcome
	}
	switch a := response.(type) {
	case *ownership.HoldingsResponse:
		*a = *h
	case *ownership.ClaimResponse:
		*a = *pages
	}
	return nil
}

// expire marks pages as out of date while expired is positive.
func (c *cluster) expire(q *ownership.ClaimRequest, a *ownership.ClaimResponse) {
	for i := range a.Pages {
		page := &a.Pages[i]
		part := slices.IndexFunc(q.Parts, func(p ownership.ClaimPart) bool {
			return p.Partition == page.Partition
		})
		if q.Parts[part].Cursor > 0 && page.State == ownership.Given && c.expired.Add(-1) >= 0 {
			*page = ownership.ClaimPage{Partition: page.Partition, State: ownership.Again}
		}
	}
}

// travel delays a message. It reports false if the deadline passes before it arrives.
func (c *cluster) travel(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(c.delay()):
		return true
	}
}

func (c *cluster) node(name string) *node {
	return c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n.self.Name == name })]
}

// agree gives the listed nodes the same members.
func (c *cluster) agree(members ...*node) {
	for _, n := range members {
		n.knows(members...)
	}
}

// knows sets the members that a node sees.
func (n *node) knows(members ...*node) {
	var list []ring.Member
	for _, m := range members {
		member := m.self
		member.Draining = m.leaves
		list = append(list, member)
	}
	t, err := ring.NewTable(list, n.self.Name, partitions, 0)
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.table.Store(t)
}

// withTwo runs a story of two nodes, the first of which holds all partitions, in a bubble.
func withTwo(t *testing.T, story func(t *testing.T, c *cluster, a, b *node)) {
	t.Helper()
	withNodes(t, 2, func(t *testing.T, c *cluster) { story(t, c, c.nodes[0], c.nodes[1]) })
}

// withNodes is withTwo for another number of nodes.
func withNodes(t *testing.T, size int, story func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, size)
		c.fill()
		story(t, c)
	})
}

// newCluster returns nodes that know only the first of them. Nobody holds a partition yet.
func newCluster(t *testing.T, size int) *cluster {
	t.Helper()
	c := &cluster{t: t, delay: func() time.Duration { return time.Millisecond }}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range size {
		id := string(rune('a' + i))
		n := &node{c: c, self: ring.Member{ID: id, Name: id}}
		c.nodes = append(c.nodes, n)
		n.knows(c.nodes[0])
		n.Partitions = ownership.New(ownership.Options{
			Partitions: partitions, Table: n.table.Load, Peers: c, Counter: &n.counter,
			Self:    func() ring.Member { return n.self },
			InRedis: n.inRedis.Load,
			Go:      func(fn func(ctx context.Context)) { running.Go(func() { fn(ctx) }) },
		})
	}
	for _, n := range c.nodes {
		running.Go(func() {
			ticker := time.NewTicker(100 * time.Millisecond)
			defer ticker.Stop()
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-ticker.C:
					n.FollowTable()
				}
			}
		})
	}
	return c
}

// fill makes the first node own everything, with a few keys in each partition.
func (c *cluster) fill() {
	c.t.Helper()
	n := c.nodes[0]
	c.settle(n)
	n.counter.mu.Lock()
	defer n.counter.mu.Unlock()
	for p := range n.counter.keys {
		for k := range 1 + p%3 {
			n.counter.keys[p] = append(n.counter.keys[p], fmt.Sprint(p, k))
		}
	}
}

// settle waits until nodes own exactly their partitions.
func (c *cluster) settle(nodes ...*node) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if !slices.ContainsFunc(nodes, func(n *node) bool { return !n.IsSettled() }) {
			return
		}
		if time.Now().After(end) {
			c.t.Fatal("not settled after a minute")
		}
	}
}

// partition returns a partition that the node's table assigns to it, or to another node.
func (n *node) partition(own bool) (p int) {
	for n.table.Load().OwnedBySelf(p) != own {
		p++
	}
	return p
}

// handOff has a node claim a partition from n, and returns the page.
func (n *node) handOff(to ring.Member, p int) ownership.ClaimPage {
	return n.HandOff(n.c.t.Context(), &ownership.ClaimRequest{By: to,
		Parts: []ownership.ClaimPart{{Partition: p}}}).Pages[0]
}

// awaitMoving waits until the node is handing a partition over.
func (n *node) awaitMoving() {
	for at, _ := n.Figures(); at.Moving == 0; at, _ = n.Figures() {
		time.Sleep(5 * time.Millisecond)
	}
}

// checkTaken checks that the node has taken partitions over, and started none from the store.
func (n *node) checkTaken() {
	n.c.t.Helper()
	if _, moves := n.Figures(); moves.FromStore > 0 || moves.Taken == 0 {
		n.c.t.Errorf("moves of %s: %+v, want none from the store", n.self.Name, moves)
	}
}

// checkDeciders checks that so many nodes decide about each partition, or one.
func (c *cluster) checkDeciders(least int) {
	c.t.Helper()
	for p := range partitions {
		if d := c.deciders(p); len(d) > 1 || len(d) < least {
			c.t.Fatalf("partition %d is decided by %v", p, d)
		}
	}
}

// deciders returns the names of the nodes whose counters decide about a partition.
func (c *cluster) deciders(p int) (names []string) {
	for _, n := range c.nodes {
		if n.counter.owns(p) {
			names = append(names, n.self.Name)
		}
	}
	return names
}
