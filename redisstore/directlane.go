package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier/leaparray"
	"twotier/syncer"
)

// Bounds of a lane.
const (
	maxWaiting   = 4096
	maxTogether  = 256
	directMinGap = 5 * time.Millisecond
	directMaxGap = 200 * time.Millisecond
)

// directLane carries operations out, one batch at a time: whatever has arrived when the previous batch is answered goes
// out together, with no delay.
type directLane struct {
	d     *Direct
	id    int
	calls chan *directCall
	seq   uint64
}

func (l *directLane) run(ctx context.Context) {
	var batch []*directCall
	for {
		first, ok := <-l.calls
		if !ok {
			return
		}
		batch = append(batch[:0], first)
	gather:
		for len(batch) < maxTogether {
			select {
			case c, ok := <-l.calls:
				if !ok {
					break gather
				}
				batch = append(batch, c)
			default:
				break gather
			}
		}
		l.serve(ctx, batch)
	}
}

// serve carries out a batch. It ends before those who wait for it give up, so that they hear what is known.
func (l *directLane) serve(ctx context.Context, batch []*directCall) {
	ctx, cancel := context.WithTimeout(ctx, l.d.opt.Timeout-l.d.opt.Timeout/10)
	defer cancel()
	if err := l.d.opt.Store.ensureReady(ctx); err != nil {
		for _, c := range batch {
			c.fail(fmt.Errorf("%w: %w", syncer.ErrUnavailable, err))
		}
		return
	}
	for len(batch) > 0 {
		n := inOrder(batch)
		l.together(ctx, batch[:n])
		batch = batch[n:]
	}
}

// inOrder returns how many calls of a batch can be carried out with all the reads last: up to one that counts a key which
// the same DoAll has read before.
func inOrder(batch []*directCall) int {
	type read struct {
		list uint64
		key  string
	}
	reads := map[read]bool{}
	for i, c := range batch {
		for j := range c.checks {
			at := read{c.list, c.checks[j].key}
			switch {
			case c.list == 0:
			case c.read:
				reads[at] = true
			case reads[at]:
				return i
			}
		}
	}
	return len(batch)
}

// together carries out what counts as one script, or one a partition in a cluster, and then the reads.
func (l *directLane) together(ctx context.Context, batch []*directCall) {
	groups := map[int][]*directCall{}
	var reads []*directCall
	for _, c := range batch {
		switch {
		case c.read:
			reads = append(reads, c)
		case l.d.opt.Store.cluster:
			groups[c.partition] = append(groups[c.partition], c)
		default:
			groups[-1] = append(groups[-1], c)
		}
	}
	if len(groups) > 0 {
		l.write(ctx, groups)
	}
	if len(reads) > 0 {
		l.read(ctx, reads)
	}
}

func (l *directLane) read(ctx context.Context, reads []*directCall) {
	s := l.d.opt.Store
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(reads))
	for i, c := range reads {
		cmds[i] = pipe.Do(ctx, s.readVerb(), c.checks[0].key)
	}
	s.roundTrips.Add(1)
	_, _ = pipe.Exec(ctx) // every command has its own error
	for i, c := range reads {
		if err := cmds[i].Err(); err != nil {
			if !isRefusal(err) {
				relearn(ctx, s.client)
			}
			s.setFailedUnlessReply(err)
			c.fail(fmt.Errorf("%w: %w", syncer.ErrUnavailable, err))
			continue
		}
		s.setFailed(nil)
		c.succeed(cmds[i].Val())
	}
}

type directGroup struct {
	calls []*directCall
	call  *scriptCall
	// doubt is set once the script may have been carried out without our knowing: whatever is said to sending it again
	// then says nothing of the first time. A cluster's client sends again by itself, and only tells of the last time.
	doubt bool
}

// write sends the groups until each is answered or time is up. Those without an answer are sent again unchanged under the
// same sequence: if they were carried out, they only tell how.
func (l *directLane) write(ctx context.Context, byPartition map[int][]*directCall) {
	s := l.d.opt.Store
	began := time.Now()
	l.seq++
	var open []directGroup
	for partition, calls := range byPartition {
		open = append(open, directGroup{calls, l.encode(partition, calls), s.cluster})
	}
	for gap := directMinGap; ; gap = min(2*gap, directMaxGap) {
		send := make([]*scriptCall, len(open))
		for i := range open {
			send[i] = open[i].call
		}
		s.roundTrips.Add(1)
		run(ctx, s.client, send)
		left := open[:0]
		for _, g := range open {
			if err := g.call.cmd.Err(); err != nil {
				g.doubt = g.doubt || !errors.Is(s.classify(err), syncer.ErrNotApplied)
				if ctx.Err() == nil && l.again(g.doubt, err, time.Since(began)) {
					left = append(left, g)
					continue
				}
			}
			s.deliver(g)
		}
		if open = left; len(open) == 0 {
			return
		}
		select {
		case <-time.After(gap):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			for _, g := range open {
				s.deliver(g)
			}
			return
		}
	}
}

// again decides whether a group that failed is sent again. What was certainly not carried out is given up soon: nobody has
// to wonder about it.
func (l *directLane) again(doubt bool, err error, spent time.Duration) bool {
	if isRefusal(err) && !isPassing(err) {
		return false
	}
	return doubt || spent < l.d.opt.Timeout/4
}

// isRefusal reports whether the server answered that it will not do it.
func isRefusal(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isPassing reports whether a server refuses because of what it is just doing: moving a slot, starting, changing roles.
func isPassing(err error) bool {
	for _, prefix := range []string{"TRYAGAIN", "MOVED", "ASK", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "NOSCRIPT"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// deliver hands every call of a group its reply, or the error that all share.
func (s *Store) deliver(g directGroup) {
	reply, err := g.call.cmd.Slice()
	if err == nil && len(reply) != len(g.calls) {
		err = fmt.Errorf("unexpected reply %v", reply)
	}
	if err != nil {
		s.setFailedUnlessReply(err)
		err = s.classify(err)
		switch {
		case g.doubt:
			err = fmt.Errorf("%w: %v", syncer.ErrUnknownOutcome, err)
		case errors.Is(err, syncer.ErrNotApplied):
			err = fmt.Errorf("%w: %w", syncer.ErrUnavailable, err)
		}
		for _, c := range g.calls {
			c.fail(err)
		}
		return
	}
	s.setFailed(nil)
	for i, c := range g.calls {
		c.succeed(reply[i])
	}
}

// setFailedUnlessReply takes an error for a sign that Redis is down, unless it was Redis who said it of one key.
func (s *Store) setFailedUnlessReply(err error) {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		s.setFailed(err)
	}
}

// encode makes one script call of the operations of a lane, or of a partition in a cluster.
func (l *directLane) encode(partition int, calls []*directCall) *scriptCall {
	s := l.d.opt.Store
	sender := "tt:!d:" + l.d.opt.Writer + ":" + strconv.Itoa(l.id)
	if partition >= 0 {
		sender = writerKey(partition, "d"+l.d.opt.Writer)
	}
	keys := positions{list: []string{sender}, at: map[string]int{}}
	var ladders []*leaparray.Ladder
	number1 := func(n int) string { return number(int64(n)) }
	var ops []any
	for _, c := range calls {
		ops = append(ops, c.kind, c.always, number(c.ts), number1(len(c.checks)))
		for i := range c.checks {
			check := &c.checks[i]
			var ladder int
			ladders, ladder = ladderIndex(ladders, check.ladder)
			ops = append(ops, number1(keys.of(check.key)), number1(keys.of(check.version)), check.args[0], number1(ladder))
			ops = append(ops, check.args[1:]...)
		}
	}
	args := []any{number(int64(l.seq)), s.sequenceTTL, number1(len(ladders))}
	for _, lad := range ladders {
		args = append(args, number1(lad.Len()))
		for i, lv := range lad.Levels() {
			args = append(args, number(lad.Width(i)), number(lv.Span().Milliseconds()), number(lad.Keep(i)))
		}
	}
	args = append(args, number1(len(calls)))
	return &scriptCall{script: s.scripts.direct, keys: keys.list, args: append(args, ops...)}
}

// ladderIndex returns the number of a ladder as Lua counts, adding it to the list if it is new.
func ladderIndex(list []*leaparray.Ladder, l *leaparray.Ladder) ([]*leaparray.Ladder, int) {
	for i, o := range list {
		if o == l {
			return list, i + 1
		}
	}
	return append(list, l), len(list) + 1
}

// positions numbers keys, as Lua counts.
type positions struct {
	list []string
	at   map[string]int
}

func (p *positions) of(key string) int {
	if n, ok := p.at[key]; ok {
		return n
	}
	p.list = append(p.list, key)
	p.at[key] = len(p.list)
	return len(p.list)
}
