package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/testing/must"
)

// list is a process's view of the list of living processes in Redis.
type list struct{ p *proc }

// errNoList means that Redis does not answer.
var errNoList = errors.New("no answer")

// RenewEntry implements roster.Store.
func (l list) RenewEntry(ctx context.Context, e roster.Entry,
	lease time.Duration) (all []roster.Entry, err error) {
	if l.p.store.Down() || l.p.toRedis(ctx) != nil {
		return nil, errNoList
	}
	w, now := l.p.w, time.Now().UnixMilli()
	w.atomic.Lock()
	e.Until = now + lease.Milliseconds()
	w.listed[e.Name] = e
	for name, e := range w.listed {
		if e.Left = time.Duration(e.Until-now) * time.Millisecond; e.Left > 0 {
			all = append(all, e)
		} else {
			delete(w.listed, name)
		}
	}
	w.atomic.Unlock()
	if l.p.toRedis(ctx) != nil {
		return nil, errNoList
	}
	return all, nil
}

// RemoveEntries implements roster.Store.
func (l list) RemoveEntries(ctx context.Context, names ...string) error {
	if l.p.store.Down() || l.p.toRedis(ctx) != nil {
		return errNoList
	}
	l.p.w.atomic.Lock()
	defer l.p.w.atomic.Unlock()
	for _, name := range names {
		delete(l.p.w.listed, name)
	}
	return nil
}

// newRoster returns the roster of a process. Where every node can be reached, none is a stranger.
func (p *proc) newRoster() *roster.Roster {
	return roster.New(roster.Options{
		Self: func() roster.Entry {
			return roster.Entry{Name: p.ring.Name(), ID: p.id, Gossip: p.ring.Gossip(),
				Address: p.ip + ":8080"}
		},
		Store: list{p}, Gossip: p.ring, Logger: p.w.logger(p.id),
		Report: func(strangers []roster.Entry) {
			for i := range strangers {
				p.w.strange.Add(1)
				if p.w.plan.exact {
					p.w.t.Errorf("%s takes %s for a stranger", p.id, &strangers[i])
				}
			}
		},
	})
}

// TestEveryNodeIsReplaced replaces each node of a cluster whose nodes join at the address of the
// first one, by SIGTERM and by SIGKILL, and starts it with the same options, while clients use up
// limits at all nodes. No limit is exceeded, and the new node is never a cluster of its own.
func TestEveryNodeIsReplaced(t *testing.T) {
	for name, end := range map[string]func(p *proc) error{
		"SIGTERM": (*proc).leave,
		"SIGKILL": func(p *proc) error { p.kill(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calmWith(t, func(p *plan) { p.oneSeed = true })
				defer w.shutDown()
				for i := 1; i <= w.plan.nodes; i++ {
					u := w.useUp(fmt.Sprint(name, i, "."))
					time.Sleep(time.Second)
					must.Succeed(t, end(w.at(i)))
					p, err := w.start(i)
					must.Succeed(t, err)
					if n := p.ring.Table().Len(); n < w.plan.nodes {
						t.Errorf("%s has started and knows %d of %d nodes", p.id, n, w.plan.nodes)
					}
					u.check(t)
				}
			})
		})
	}
}

// use is traffic that uses up limits.
type use struct {
	limit    int64
	running  sync.WaitGroup
	admitted [8]atomic.Int64 // by key
	fallback atomic.Int64    // admitted in place of an owner that was killed
}

// useUp acquires keys at all nodes, for as long as a replacement takes at most. Redis has each
// acquire before it is acknowledged, so that none is lost with a node.
func (w *world) useUp(prefix string) *use {
	u := &use{limit: 20}
	for i := range 24 {
		at, key := &u.admitted[i%8], fmt.Sprint(prefix, i%8)
		rnd := rand.New(rand.NewPCG(w.seed, uint64(i)))
		u.running.Go(func() {
			for range 100 {
				time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
				op := acquiring(u.limit, key)
				op.Ack = twotier.AckStore
				p := w.pick(rnd)
				switch res, err := p.do(op, 2*time.Second); {
				case err != nil || !res.Allowed:
				case res.Source == twotier.SourceFallback:
					u.fallback.Add(1)
				default:
					at.Add(1)
				}
			}
		})
	}
	return u
}

// check waits for the end of the traffic. No limit may be exceeded by owners, and nearly all must
// be used up.
func (u *use) check(t *testing.T) {
	t.Helper()
	u.running.Wait()
	all := u.fallback.Load()
	for i := range u.admitted {
		n := u.admitted[i].Load()
		if all += n; n > u.limit {
			t.Errorf("key %d: %d admitted, the limit is %d", i, n, u.limit)
		}
	}
	if all < u.limit*int64(len(u.admitted))*9/10 {
		t.Errorf("only %d admitted", all)
	}
}

// TestStartAmongTheDead starts nodes after all others were killed: a start waits until the entries
// of the dead have run out, and nodes that start together wait for each other only until they have
// met.
func TestStartAmongTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWith(t, func(p *plan) { p.oneSeed = true })
		defer w.shutDown()
		for _, p := range w.alive() {
			p.kill()
		}
		began := time.Now()
		_, err := w.startAs(2, "other")
		must.Succeed(t, err)
		if took := time.Since(began); took < roster.Lease/2 || took > 2*roster.Lease {
			t.Errorf("the first node has started after %v", took)
		}
		for _, p := range w.alive() {
			p.kill()
		}
		began = time.Now()
		var starting sync.WaitGroup
		for _, i := range []int{1, 2, 3} {
			starting.Go(func() {
				_, err := w.startAs(i, fmt.Sprint("other", i%3))
				must.Succeed(t, err)
			})
		}
		starting.Wait()
		if took := time.Since(began); took > 2*roster.Lease {
			t.Errorf("all have started after %v", took)
		}
		if !w.until(5*time.Second, func() bool { return w.at(1).ring.Table().Len() == 3 }) {
			t.Error("the nodes have not met")
		}
	})
}

// TestStrangers splits a cluster into a node and the rest. Each side reports the other as strangers
// until they have met again. A node that starts without reaching the others gives up on them after
// a while.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWith(t, func(p *plan) { p.oneSeed, p.kind = true, splits })
		defer w.shutDown()
		w.net.Split([]string{ip(1)}, []string{ip(2), ip(3), ip(4)})
		time.Sleep(20 * time.Second)
		if w.strange.Load() == 0 {
			t.Error("no node has noticed that it is not alone with the data")
		}
		must.Succeed(t, w.at(2).leave())
		must.Succeed(t, w.at(3).leave())
		began := time.Now()
		_, err := w.start(4)
		must.Succeed(t, err)
		if took := time.Since(began); took < roster.Patience || took > 2*roster.Patience {
			t.Errorf("a node that can't reach the others has started after %v", took)
		}
		w.net.Heal()
		if !w.until(30*time.Second, func() bool { return w.at(1).ring.Table().Len() == 2 }) {
			t.Error("the nodes have not met")
		}
		time.Sleep(5 * time.Second)
		before := w.strange.Load()
		time.Sleep(time.Minute)
		if w.strange.Load() != before {
			t.Error("members are reported as strangers")
		}
	})
}
