package simtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	nodemodes "twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/testing/must"
)

// TestJoinDuringAChangeOfMode lets a node join while the others, whose counts are not in Redis yet,
// are about to change the mode. The change fails because Redis is down. The new node starts with
// the others' counts.
func TestJoinDuringAChangeOfMode(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		const limit = 20
		p := w.alive()[0]
		for _, q := range w.alive() {
			q.store.SetDown(true)
		}
		keys := make([]string, 60)
		for i := range keys {
			keys[i] = fmt.Sprint("m", i)
			for range limit {
				if _, err := p.do(adding(keys[i]), 2*time.Second); err != nil {
					t.Fatal(err)
				}
			}
		}
		changed := make(chan error, 1)
		go func() { changed <- p.setMode(cluster.Redis) }()
		time.Sleep(100 * time.Millisecond)
		q, err := w.start(4)
		must.Succeed(t, err)
		if err := <-changed; err == nil {
			t.Error("the mode has changed without Redis")
		}
		owned := w.keysAmong(q, keys)
		for _, key := range owned {
			res, err := q.do(acquiring(limit, key), 2*time.Second)
			if err != nil || res.Allowed || res.Source == twotier.SourceFallback {
				t.Errorf("%s: %v, allowed %v (%s), although all is used up", key, err, res.Allowed,
					res.Source)
			}
		}
		if len(owned) == 0 {
			t.Error("no key moved")
		}
		for _, q := range w.alive() {
			q.store.SetDown(false)
		}
		time.Sleep(10 * time.Second)
	})
}

// keysAmong returns the keys that a process owns.
func (w *world) keysAmong(p *proc, keys []string) (owned []string) {
	for _, key := range keys {
		if p.ring.Table().OwnedBySelf(w.partition(key)) {
			owned = append(owned, key)
		}
	}
	return owned
}

func (p *proc) setMode(mode cluster.Mode) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.node.SetMode(ctx, mode)
}

// TestTwoAdministratorsAtOnce changes the mode on two nodes at the same time, again and again,
// while Redis is slow. Either both changes are aborted or one is made. The nodes agree in the end,
// and no limit is exceeded on the way.
func TestTwoAdministratorsAtOnce(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		const limit = 300
		var admitted atomic.Int64
		var busy sync.WaitGroup
		stop := make(chan struct{})
		for _, p := range w.alive() {
			busy.Go(func() { acquireUntil(stop, p, limit, &admitted) })
		}
		made := 0
		for round := 0; round < 12 || made == 0 && round < 200; round++ {
			mode := cluster.Redis
			if w.alive()[0].node.Mode() == mode {
				mode = cluster.TwoTier
			}
			made += changeAtOnce(mode, w.alive()[0], w.alive()[1])
			time.Sleep(300 * time.Millisecond)
			for _, p := range w.alive() {
				if got, want := p.node.Mode(), w.alive()[0].node.Mode(); got != want {
					t.Errorf("%s is in mode %s, n1 in %s", p.id, got, want)
				}
			}
		}
		close(stop)
		busy.Wait()
		if n := admitted.Load(); n != limit || made == 0 {
			t.Errorf("%d admitted, the limit is %d; %d changes were made", n, limit, made)
		}
		for w.alive()[0].node.Mode() != cluster.TwoTier {
			_ = w.alive()[0].setMode(cluster.TwoTier)
		}
	})
}

// TestOneAdministratorEndsNoOthersChange aborts one change of mode that began while another was in
// progress. Nodes that are prepared for the other change decide nothing until that one ends,
// because some nodes are in the new mode already.
func TestOneAdministratorEndsNoOthersChange(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		list := w.alive()
		a, b, key := list[0], list[1], w.keysOf(list[2], "k", 1)[0]
		tell := func(from *proc, phase nodemodes.Phase, to ...*proc) (err error) {
			for _, p := range to {
				_, failed := p.node.Respond(t.Context(),
					&nodemodes.Request{By: from.id, Mode: nodemodes.Redis, Term: 1, Phase: phase})
				err = errors.Join(err, failed)
			}
			return err
		}
		must.Succeed(t, tell(a, nodemodes.Prepare, list...))
		if tell(b, nodemodes.Prepare, list[2]) == nil {
			t.Error("a node is prepared for two changes")
		}
		must.Succeed(t, tell(b, nodemodes.Abort, list[2]))
		must.Succeed(t, tell(a, nodemodes.Commit, a, b))
		for _, p := range list {
			for range 5 {
				if res, err := p.do(acquiring(5, key), 100*time.Millisecond); err == nil &&
					res.Source != twotier.SourceRedis {
					t.Errorf(
						"%s has decided by what is in memory (%s) while others decide in Redis",
						p.id, res.Source)
				}
			}
		}
		must.Succeed(t, tell(a, nodemodes.Commit, list[2]))
		if res, err := list[2].do(acquiring(5, key), time.Second); err != nil || res.Allowed ||
			res.Source != twotier.SourceRedis {
			t.Errorf("allowed %v (%s), %v, although all is used up", res.Allowed, res.Source, err)
		}
	})
}

// changeAtOnce changes the mode on several processes at the same time. It returns how many reported
// success.
func changeAtOnce(mode cluster.Mode, list ...*proc) (made int) {
	results := make(chan error, len(list))
	for i, p := range list {
		go func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			results <- p.setMode(mode)
		}()
	}
	for range list {
		if <-results == nil {
			made++
		}
	}
	return made
}

// acquireUntil acquires one key on a process until stop is closed.
func acquireUntil(stop chan struct{}, p *proc, limit int64, admitted *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		if res, err := p.do(acquiring(limit, "k"), 2*time.Second); err == nil && res.Allowed {
			admitted.Add(1)
		}
	}
}

// TestNothingIsForwardedInRedisMode counts a key of another node before and after a change to Redis
// mode, in which every node asks Redis itself.
func TestNothingIsForwardedInRedisMode(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		a, b := w.alive()[0], w.alive()[1]
		op := adding(w.keysOf(b, "k", 1)[0])
		servedFor := func() int64 {
			before := b.node.Stats().ServedTotal
			for range 20 {
				_, err := a.do(op, 2*time.Second)
				must.Succeed(t, err)
			}
			return b.node.Stats().ServedTotal - before
		}
		if n := servedFor(); n != 20 {
			t.Errorf("%d of 20 operations reached the owner", n)
		}
		must.Succeed(t, a.setMode(cluster.Redis))
		if n := servedFor(); n != 0 {
			t.Errorf("in Redis mode %d of 20 operations were forwarded", n)
		}
	})
}
