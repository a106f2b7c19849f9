package hotkeys

import (
	"context"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// grant is a key that its owner lets other nodes count.
type grant struct {
	key    Key
	cooled int       // consecutive reviews at which it was no longer hot
	until  time.Time // when the last lease ends
}

// review grants leases of keys that have become hot since the last review, renews those of keys
// that still are, and lets the others end.
func (t *Tracker) review(ctx context.Context, since time.Duration) {
	forwarded := t.heat.take()
	hot := int64(t.opt.Rate * since.Seconds())
	table := t.opt.Table()
	for name, ops := range forwarded {
		if ops >= hot && hot > 0 && table.Len() > 1 {
			t.grant(table, name)
		}
	}
	names, q := t.renewals(table)
	if len(names) == 0 {
		return
	}
	leased := t.renew(ctx, table, q)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, name := range names {
		g := t.grants[name]
		if 2*(leased[i]+forwarded[name]) < hot {
			g.cooled++
		} else {
			g.cooled = 0
		}
	}
}

// grant lets others count a key from now on, if this node owns it and there is room.
func (t *Tracker) grant(table *ring.Table, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grants[name] != nil || len(t.grants) >= maxGrants {
		return
	}
	ns, key, _ := strings.Cut(name, "\x00")
	g := &grant{key: Key{NS: []byte(ns), Key: []byte(key)}}
	if !t.owns(table, &g.key) || t.opt.Counter.Share(g.key.NS, g.key.Key, true) != nil {
		return
	}
	t.grants[name] = g
	t.opt.Logger.Info("a key is hot: every node counts it for now", "key", key)
}

// renewals returns the keys whose leases are renewed, and ends grants that have no lease left.
func (t *Tracker) renewals(table *ring.Table) (names []string, q *LeaseRequest) {
	q = &LeaseRequest{By: t.opt.Self(), For: leaseTime}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, g := range t.grants {
		switch {
		case t.shouldRenew(table, g):
			q.Keys, names = append(q.Keys, g.key), append(names, name)
			// It may take a member a whole interval to hear of the renewal.
			g.until = time.Now().Add(interval + leaseTime)
		case time.Now().After(g.until.Add(t.opt.Counter.StaleAfter())):
			// No lease is left, and everything counted under one is flushed.
			delete(t.grants, name)
			t.unshareLocked(name, &g.key)
			t.opt.Logger.Info("a key is no longer hot: only its owner counts it", "key",
				string(g.key.Key))
		}
	}
	return names, q
}

// shouldRenew reports whether to renew the leases of a key. The counter shares the key already,
// unless another node owned it in between, so it is asked each time.
func (t *Tracker) shouldRenew(table *ring.Table, g *grant) bool {
	return t.owns(table, &g.key) && g.cooled < coolAfter && !t.opt.Paused() &&
		t.opt.Counter.Share(g.key.NS, g.key.Key, true) == nil
}

// renew tells every member which keys it may count, and returns how many operations they have
// counted on each key since they were last told.
func (t *Tracker) renew(ctx context.Context, table *ring.Table, q *LeaseRequest) []int64 {
	ops := make([]int64, len(q.Keys))
	var mu sync.Mutex
	rpc.Broadcast(ctx, table, interval, func(ctx context.Context, m *ring.Member) {
		var a LeaseResponse
		if t.opt.Peers.Ask(ctx, m, q, &a) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range min(len(ops), len(a.Ops)) {
			ops[i] += a.Ops[i]
		}
	})
	return ops
}
