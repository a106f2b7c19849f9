package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// fetchAll finds the keys of calls, and reads those of which the worker holds nothing, or nothing
// that is still known to be true.
func (w *directWorker) fetchAll(ctx context.Context, calls []*directCall) {
	w.held.rotate()
	w.fetches = w.fetches[:0]
	for _, c := range calls {
		for i := range c.keys {
			key := &c.keys[i]
			p := w.partitions[key.partition]
			if p == nil {
				p = &heldPartition{}
				w.partitions[key.partition] = p
			}
			k := w.held.find(key.name)
			if k == nil {
				k = &heldKey{name: string(key.name), partition: key.partition, hash: key.hash,
					ladder: key.ladder, values: heldValues{most: key.values}}
				w.held.put(k)
			}
			if key.held = k; k.fetching || k.generation == p.generation && k.generation != 0 {
				continue
			}
			k.err = nil
			if k.generation == 0 && p.generation != 0 && w.guesses.absent() {
				k.guess(p.generation)
				continue
			}
			k.fetching = true
			w.fetches = append(w.fetches, k)
		}
	}
	eachBounded(w.fetches, func(k *heldKey) int { return mostFields(k.ladder, k.values.most) },
		func(keys []*heldKey) { w.fetchUntilRead(ctx, keys) })
}

// eachBounded calls read with some of a list at a time, given how many fields each may have. Redis
// may serve nobody else until it has carried out the part of a pipeline that it has received.
func eachBounded[T any](list []T, fields func(T) int, read func([]T)) {
	for len(list) > 0 {
		n, sum := 1, fields(list[0])
		for n < len(list) && sum+fields(list[n]) <= maxBuckets {
			sum += fields(list[n])
			n++
		}
		read(list[:n])
		list = list[n:]
	}
}

// fetchUntilRead reads keys. For a while, it reads those again that could not be read for a passing
// reason.
func (w *directWorker) fetchUntilRead(ctx context.Context, keys []*heldKey) {
	began := time.Now()
	for gap := directMinGap; ; gap = min(2*gap, directMaxGap) {
		if keys = w.fetch(ctx, keys, began); len(keys) == 0 {
			return
		}
		if !retry.Pause(ctx, gap) {
			return
		}
	}
}

// fetch reads keys, and the states of their partitions before, unless these are known. So a change
// between the two is taken for one after both. It returns the keys to read again.
func (w *directWorker) fetch(ctx context.Context, keys []*heldKey,
	began time.Time) (again []*heldKey) {
	s := w.d.opt.Store
	var strange []int
	for _, k := range keys {
		if w.partitions[k.partition].generation == 0 && !slices.Contains(strange, k.partition) {
			strange = append(strange, k.partition)
		}
	}
	pipe := s.conn.Client.Pipeline()
	states, hashes := make([]*redis.Cmd, len(strange)), make([]*redis.Cmd, len(keys))
	for i, partition := range strange {
		states[i] = pipe.Do(ctx, "HMGET", s.prefix.StateKey(partition), "e", "q", "v", "d")
	}
	if s.conn.Cluster && len(strange) > 0 {
		// The client of a cluster does not keep the order when a slot moves.
		s.conn.RoundTrips.Add(1)
		scripts.Execute(ctx, pipe)
		pipe = s.conn.Client.Pipeline()
	}
	for i, k := range keys {
		hashes[i] = pipe.Do(ctx, s.readVerb(), k.name)
	}
	s.conn.RoundTrips.Add(1)
	scripts.Execute(ctx, pipe)
	failed := map[int]error{}
	for i, partition := range strange {
		if state, err := states[i].Slice(); err != nil {
			failed[partition] = s.readError(ctx, err)
		} else {
			w.learn(partition, parsePartition(state))
		}
	}
	now := w.d.opt.Now()
	for i, k := range keys {
		k.fetching = false
		k.err = cmp.Or(failed[k.partition], s.readError(ctx, hashes[i].Err()))
		if k.err != nil {
			if w.shouldResend(false, k.err, time.Since(began)) {
				again = append(again, k)
			}
			continue
		}
		k.load(w.flatten(hashes[i].Val()), now)
		w.guesses.learn(len(w.flat) > 0)
		k.generation = w.partitions[k.partition].generation
	}
	return again
}

// heldPartition is what a worker knows of a partition: whatever others change advances others, or
// one of the rest.
type heldPartition struct {
	epoch, quieted string
	others         int64
	// generation counts how often the worker has learned this: 0 if it knows nothing yet.
	generation uint32
}

// parsePartition parses the epoch, quieted, version and changes of a partition.
func parsePartition(state []any) heldPartition {
	v, _ := strconv.ParseInt(scripts.TextAt(state, 2), 10, 64)
	d, _ := strconv.ParseInt(scripts.TextAt(state, 3), 10, 64)
	return heldPartition{epoch: scripts.TextAt(state, 0), quieted: scripts.TextAt(state, 1),
		others: v - d}
}

func (w *directWorker) learn(partition int, p heldPartition) {
	old := w.partitions[partition]
	p.generation = old.generation + 1
	*old = p
}

// flatten returns the fields and values of a reply, until the next one.
func (w *directWorker) flatten(value any) []string {
	reply, _ := value.([]any)
	w.flat = w.flat[:0]
	for i := range reply {
		w.flat = append(w.flat, scripts.TextAt(reply, i))
	}
	return w.flat
}

// readError returns the error of a call whose key could not be read.
func (s *Store) readError(ctx context.Context, err error) error {
	if err == nil {
		s.conn.SetFailed(nil)
		return nil
	}
	if !scripts.IsRefusal(err) {
		scripts.ReloadSlots(ctx, s.conn.Client)
	}
	s.setFailedUnlessReply(err)
	return fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
}

func (w *directWorker) readAll(ctx context.Context, reads []*directCall) {
	s := w.d.opt.Store
	pipe := s.conn.Client.Pipeline()
	cmds := make([]*redis.Cmd, len(reads))
	for i, c := range reads {
		cmds[i] = pipe.Do(ctx, s.readVerb(), string(c.keys[0].name))
	}
	s.conn.RoundTrips.Add(1)
	scripts.Execute(ctx, pipe)
	for i, c := range reads {
		if err := s.readError(ctx, cmds[i].Err()); err != nil {
			c.Finish(err)
			continue
		}
		k := heldKey{ladder: c.keys[0].ladder}
		k.load(w.flatten(cmds[i].Val()), c.now)
		if c.err = k.err; c.err == nil {
			c.known = k.known(c.now)
			w.decider.read(c)
		}
		c.Finish(nil)
	}
}

// Series returns the buckets of a key over a window of this many milliseconds that ends now, oldest
// first, and their width.
func (d *Direct) Series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []twotier.Point, err error) {
	op := readOp(ns, key, window)
	v, now, err := d.read(ctx, &op)
	if err != nil {
		return 0, nil, err
	}
	bucketMS, ok := v.Series(window, now, func(start, n int64) {
		points = append(points, twotier.Point{Start: start, Count: n})
	})
	if !ok {
		return 0, nil, twotier.OutOfReach(&op, v.Ladder, window, now, now)
	}
	return bucketMS, points, nil
}

// Snapshot returns all buckets of a key, and the present time in unix milliseconds.
func (d *Direct) Snapshot(ctx context.Context, ns, key []byte) (v leaparray.View, now int64,
	err error) {
	op := readOp(ns, key, 1)
	return d.read(ctx, &op)
}

func readOp(ns, key []byte, window int64) twotier.Op {
	return twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{{NS: ns, Key: key, Limits: []twotier.Limit{{Window: window}}}}}
}

func (d *Direct) read(ctx context.Context, op *twotier.Op) (v leaparray.View, now int64,
	err error) {
	now = d.opt.Now()
	if _, err := twotier.Validate(op, d.ladder, now); err != nil {
		return v, now, err
	}
	c := d.newCall(op, now, now)
	if err = d.submit(c); err == nil {
		err = c.wait(ctx, d.opt.Timeout)
	}
	if err != nil {
		return v, now, err
	}
	return c.known.View, now, nil
}

// Forget deletes a key. Counters that still know its counts will not restore them after an earlier
// loss.
func (d *Direct) Forget(ctx context.Context, ns, key []byte) error {
	ns = storedNamespace(ns)
	s := d.opt.Store
	if err := s.ensureReady(ctx); err != nil {
		return fmt.Errorf("reset: %w: %w", twotier.ErrUnavailable, err)
	}
	partition := s.opt.Placement.Of(ns, key)
	call := &scripts.Call{Script: s.scripts.Reset, Args: []any{s.sequenceTTL},
		Keys: []string{s.prefix.StateKey(partition), s.prefix.Key(partition, ns, key)}}
	err := s.runOne(ctx, call)
	if errors.Is(err, syncer.ErrNotApplied) {
		err = fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
	}
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}
