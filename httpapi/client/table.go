package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
)

// table is one state of the cluster, as reported by a node. It is immutable.
type table struct {
	version uint64
	place   twotier.Placement
	owners  []uint16 // by partition, an index into members; empty if any node will do
	members []member
}

type member struct {
	address string // empty if it can't be reached directly
	leaving bool
}

// Bounds of an accepted table.
const (
	maxPartitions = 1 << 16 // as on the servers
	maxMembers    = 1 << 12
	maxNamespaces = 1 << 12
)

// errTable is the error of a node's report about the cluster that is inconsistent.
var errTable = errors.New("the table of owners is malformed")

// readTable parses the table that the node at an address reported.
func readTable(b []byte, address string) (*table, error) {
	var raw struct {
		Mode       string
		Version    uint64 `json:"ring_version"`
		Partitions int
		Seed       *uint64          `json:"hash_seed"`
		HashTags   twotier.HashTags `json:"hash_tags"`
		Owners     []uint16
		Members    []struct {
			Address, State string
			Self           bool
		}
	}
	if hasMoreValues(b, maxPartitions+64*maxMembers+maxNamespaces) ||
		json.Unmarshal(b, &raw) != nil || len(raw.Members) == 0 || len(raw.Members) > maxMembers {
		return nil, errTable
	}
	t := &table{version: raw.Version}
	for _, m := range raw.Members {
		at := reachable(m.Address, address, m.Self)
		t.members = append(t.members, member{at, m.State != "alive"})
	}
	// Without owners, Redis decides, or the node does not know the owners.
	if raw.Mode != "two-tier" || len(raw.Owners) == 0 || raw.Seed == nil {
		return t, nil
	}
	t.owners = raw.Owners
	t.place = twotier.Placement{Partitions: raw.Partitions, Seed: *raw.Seed, HashTags: raw.HashTags}
	if len(t.owners) != raw.Partitions || int(slices.Max(t.owners)) >= len(t.members) {
		return nil, errTable
	}
	return t, nil
}

// reachable returns the address to reach a member at, or none if the member did not give one. If
// the reporting node listens on all addresses of its machine, its address is the one that the
// client called.
func reachable(address, at string, self bool) string {
	host, _, err := net.SplitHostPort(address)
	ip, notIP := netip.ParseAddr(host)
	unspecified := err != nil || host == "" || notIP == nil && ip.IsUnspecified()
	switch {
	case unspecified && self:
		return at
	case unspecified:
		return ""
	}
	return address
}

// none is the index of no member.
const none = -1

// owner returns the index of the member that owns a key, or none.
func (t *table) owner(ns, key string) int {
	if t == nil || len(t.owners) == 0 {
		return none
	}
	return int(t.owners[t.partition(ns, key)])
}

// partition returns the partition of a key. It only allocates for longer keys than servers accept.
func (t *table) partition(ns, key string) int {
	var room [maxKey + 64]byte
	text := append(append(room[:0], key...), ns...)
	return t.place.Of(text[len(key):], text[:len(key)])
}

const (
	tablePath = "/v1/cluster?owners=true"
	// firstRefresh bounds how often answers that reveal an outdated table make the client read it,
	// and how soon it tries a node that does not answer again.
	firstRefresh = 100 * time.Millisecond
	// downRefresh is how often nodes that don't answer are tried.
	downRefresh = 500 * time.Millisecond
)

// refresh makes the client read the table soon, preferably from l if that is not nil.
func (c *Client) refresh(l *link) {
	select {
	case c.hints <- l:
	default:
	}
}

// runRefresh reads the table until the client is closed.
func (c *Client) runRefresh() {
	var hint *link
	for {
		started := time.Now()
		// If this fails, the old table stays in use; calls find out which nodes don't answer.
		_ = c.fetchTable(c.ctx, hint)
		hint = c.pause(started)
		if c.ctx.Err() != nil {
			return
		}
	}
}

// pause waits until it is time to read the table again.
func (c *Client) pause(started time.Time) (hint *link) {
	every := c.opt.Refresh
	if c.anyDown() {
		every = min(every, downRefresh)
	}
	timer := time.NewTimer(time.Duration(float64(every) * (0.75 + rand.Float64()/2)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	case hint = <-c.hints:
		soon := time.NewTimer(time.Until(started.Add(firstRefresh)))
		defer soon.Stop()
		select {
		case <-soon.C:
		case <-c.ctx.Done():
		}
	}
	return hint
}

// Refresh reads the table of owners now. The client does so by itself; call this to make sure that
// the client has a table.
func (c *Client) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, c.deadline(ctx))
	defer cancel()
	return c.fetchTable(ctx, nil)
}

// fetchTable reads the table from the hinted node or any other, and then checks which members
// answer.
func (c *Client) fetchTable(ctx context.Context, hint *link) error {
	select {
	case <-c.learner:
		defer func() { c.learner <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var tried trail
	err := ErrUnavailable
	for !tried.full() && ctx.Err() == nil {
		l := hint
		if hint = nil; l == nil || l.ctx.Err() != nil {
			if l, _ = c.chooseNode(none, &tried); l == nil {
				break
			}
		}
		tried.add(l)
		var t *table
		if t, err = l.table(ctx); err == nil {
			return c.installTable(ctx, t)
		}
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("read the table of owners: %w", errors.Join(err, ctx.Err()))
}

// table requests the table from a node.
func (l *link) table(ctx context.Context) (*table, error) {
	by := time.Now().Add(l.c.opt.AttemptTimeout)
	status, body, _, err := l.ask(ctx, "GET", tablePath, nil, by)
	if err != nil {
		l.down(err)
		return nil, err
	}
	l.recordSuccess()
	if status != 200 {
		return nil, readProblem(status, body)
	}
	return readTable(body, l.address)
}

// ping checks whether a node answers.
func (l *link) ping(ctx context.Context) {
	_, _, _, err := l.ask(ctx, "GET", "/healthz", nil, time.Now().Add(l.c.opt.AttemptTimeout))
	if err == nil {
		l.recordSuccess()
	} else if ctx.Err() == nil {
		l.down(err)
	}
}

// installTable makes a table the current one, after checking which members answer.
func (c *Client) installTable(ctx context.Context, t *table) error {
	v := &view{table: t, members: make([]*link, len(t.members))}
	for i, m := range t.members {
		if c.opt.OnlyAddresses || m.address == "" {
			continue
		}
		l, err := c.link(m.address)
		if err != nil {
			return err
		}
		v.members[i] = l
		if !m.leaving {
			v.any = append(v.any, l)
		}
	}
	if len(v.any) == 0 {
		v.any = c.seeds
	}
	c.pingAll(ctx, v)
	c.view.Store(v)
	c.stats.refreshed.Add(1)
	c.retireLinks(v)
	return nil
}

// pingAll pings members that are new or did not answer.
func (c *Client) pingAll(ctx context.Context, v *view) {
	var done sync.WaitGroup
	for _, l := range c.known(v) {
		if !l.up.Load() {
			done.Go(func() { l.ping(ctx) })
		}
	}
	done.Wait()
}

func (c *Client) anyDown() bool {
	return slices.ContainsFunc(c.known(c.view.Load()), func(l *link) bool { return !l.up.Load() })
}

// link returns the link to an address. A new one must answer a ping first.
func (c *Client) link(address string) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == nil {
		return nil, ErrClosed
	}
	l := c.links[address]
	if l == nil {
		l = newLink(c, address)
		l.up.Store(false)
		c.links[address] = l
	}
	return l, nil
}

// retireLinks ends the links to addresses that are no longer members.
func (c *Client) retireLinks(v *view) {
	keep := map[*link]bool{}
	for _, l := range c.known(v) {
		keep[l] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, l := range c.links {
		if !keep[l] {
			l.stop()
			delete(c.links, address)
		}
	}
}
