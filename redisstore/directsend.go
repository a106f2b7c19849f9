package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/redisstore/internal/fences"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// groupIntoScripts has Redis carry out groups: in one script call, or one per partition in a
// cluster.
func (w *directWorker) groupIntoScripts(groups []*directGroup, now int64) []*directScript {
	w.seq++
	used := 0
	next := func(sender string) *directScript {
		if used == len(w.scripts) {
			w.scripts = append(w.scripts, newDirectScript(w.d.opt.Store))
		}
		s := w.scripts[used]
		used++
		s.startFor(sender)
		return s
	}
	if !w.d.opt.Store.conn.Cluster {
		s := next(w.sender)
		s.groups = append(s.groups, groups...)
	} else {
		of := map[int]*directScript{}
		for _, g := range groups {
			partition := g.first.partition()
			s := of[partition]
			if s == nil {
				s = next(w.d.opt.Store.prefix.WriterKey(partition, w.name()))
				of[partition] = s
			}
			s.groups = append(s.groups, g)
		}
	}
	for _, s := range w.scripts[:used] {
		s.encode(w.seq, w.claimant, w.partitions, now)
	}
	return w.scripts[:used]
}

// sendScripts sends scripts until each is answered or time is up. A script without an answer is
// sent again unchanged under the same sequence: if it was applied, Redis only returns its
// decisions.
func (w *directWorker) sendScripts(ctx context.Context, open []*directScript,
	now int64) {
	s := w.d.opt.Store
	began := time.Now()
	var send []*scripts.Call
	open = slices.Clone(open)
	for gap := directMinGap; ; gap = min(2*gap, directMaxGap) {
		send = send[:0]
		for _, g := range open {
			send = append(send, &g.call)
		}
		s.runPipeline(ctx, send)
		left := open[:0]
		for _, g := range open {
			if err := g.call.Cmd.Err(); err != nil {
				if ctx.Err() == nil && w.shouldResend(g.call.MayHaveRun, err, time.Since(began)) {
					left = append(left, g)
					continue
				}
			}
			w.deliver(g, now)
		}
		if open = left; len(open) == 0 {
			return
		}
		if !retry.Pause(ctx, gap) {
			for _, g := range open {
				w.deliver(g, now)
			}
			return
		}
	}
}

// shouldResend decides whether a failed script is sent again. A script that was certainly not
// applied is given up soon, because no outcome is in doubt. In a cluster it is not, because a slot
// that moves or a replica that takes over may need the time.
func (w *directWorker) shouldResend(mayHaveRun bool, err error, spent time.Duration) bool {
	if scripts.IsRefusal(err) && !scripts.IsTransient(err) {
		return false
	}
	return mayHaveRun || w.d.opt.Store.conn.Cluster || spent < w.d.opt.Timeout/4
}

// deliver hands every call of a script its answer, or the error that they all share. Calls of
// groups whose keys were not as expected have no answer yet.
func (w *directWorker) deliver(g *directScript, now int64) {
	s := w.d.opt.Store
	reply, err := g.call.Cmd.Slice()
	var list []outcome
	again := false
	if err == nil {
		list, again, err = g.decode(reply, w.learn)
	}
	if err != nil {
		s.setFailedUnlessReply(err)
		if err = g.call.Classify(err); errors.Is(err, syncer.ErrNotApplied) {
			err = fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
		}
		for _, group := range g.groups {
			w.fail(group, err)
		}
		return
	}
	s.conn.SetFailed(nil)
	for i, group := range g.groups {
		switch out := &list[i]; {
		case out.changed:
			w.settle(group, g, again)
		case out.refusal != "":
			reason := twotier.ErrUnavailable
			if out.partly {
				reason = twotier.ErrUnknownOutcome
			}
			w.fail(group, fmt.Errorf("%w: Redis refuses this key: %s", reason, out.refusal))
		default:
			group.stale = true
			for j, k := range group.keys {
				w.replace(k, out.keys[j], now)
			}
		}
	}
}

// settle finishes the calls of a group that was carried out.
func (w *directWorker) settle(group *directGroup, g *directScript, again bool) {
	for _, k := range group.keys {
		if k.guessed {
			w.guesses.learn(false)
		}
		k.settle(g.version)
		if k.generation = w.partitions[k.partition].generation; again {
			k.generation = 0 // others may have changed it since
		}
		w.held.account(k)
	}
	for c := range group.calls {
		if group.writes { // otherwise the script did not store its number
			c.mark = fences.Mark{Key: g.sender, Seq: w.seq}
		}
		c.Finish(nil)
	}
}

// fail finishes the calls of a group with an error. Nothing is known of its keys any more.
func (w *directWorker) fail(group *directGroup, err error) {
	for _, k := range group.keys {
		k.group = nil
		w.held.remove(k)
	}
	for c := range group.calls {
		c.Finish(err)
	}
}

// replace replaces what the worker holds of a key by what the reply has of it.
func (w *directWorker) replace(k *heldKey, reply any, now int64) {
	k.group, k.generation, k.changed = nil, 0, false
	switch reply := reply.(type) {
	case string:
		k.err = fmt.Errorf("%w: Redis refuses this key: %s", twotier.ErrUnavailable, reply)
		k.generation = w.partitions[k.partition].generation
	case []any:
		if k.guessed {
			w.guesses.learn(len(reply) > 0)
		}
		k.load(w.flatten(reply), now)
		k.generation = w.partitions[k.partition].generation
	}
	w.held.account(k)
}

// setFailedUnlessReply takes an error as a sign that Redis is down, unless Redis reports it about a
// single key.
func (s *Store) setFailedUnlessReply(err error) {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		s.conn.SetFailed(err)
	}
}
