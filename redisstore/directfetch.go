package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/scripts"
)

// pipelineLen returns how many reads may be sent together. Redis may serve nobody else until it
// has carried out the part of a pipeline that it has received.
func pipelineLen(reads []*directCall) int {
	buckets := 0
	for i, c := range reads {
		if buckets += c.keys[0].ladder.MaxCells(); buckets > maxBuckets && i > 0 {
			return i
		}
	}
	return len(reads)
}

// fetchAll finds the keys of calls, and reads those of which the worker holds nothing, or nothing
// that is still known to be true.
func (w *directWorker) fetchAll(ctx context.Context, calls []*directCall) {
	w.held.rotate()
	w.fetches = w.fetches[:0]
	var strange []int
	for _, c := range calls {
		for i := range c.keys {
			key := &c.keys[i]
			p := w.partitions[key.partition]
			if p == nil {
				p = &heldPartition{}
				w.partitions[key.partition] = p
				strange = append(strange, key.partition)
			}
			k := w.held.find(key.name)
			if k == nil {
				k = &heldKey{name: string(key.name), partition: key.partition, hash: key.hash,
					ladder: key.ladder}
				w.held.put(k)
			}
			if key.held = k; k.fetching || k.known == p.known && k.known != 0 {
				continue
			}
			if k.err = nil; k.known == 0 && p.known != 0 && w.guesses.absent() {
				k.guess(p.known)
				continue
			}
			k.fetching = true
			w.fetches = append(w.fetches, k)
		}
	}
	for keys := w.fetches; len(keys) > 0; {
		n, buckets := 0, 0
		for n < len(keys) && (n == 0 || buckets+keys[n].ladder.MaxCells() <= maxBuckets) {
			buckets += keys[n].ladder.MaxCells()
			n++
		}
		if w.d.opt.Store.conn.Cluster && len(strange) > 0 {
			w.fetch(ctx, strange, nil) // its client does not keep the order when a slot moves
			strange = nil
		}
		w.fetch(ctx, strange, keys[:n])
		strange = nil
		keys = keys[n:]
	}
}

// fetch reads the states of partitions, and keys. The keys come after their partitions, so that a
// change between the two is taken for one after both.
func (w *directWorker) fetch(ctx context.Context, partitions []int, keys []*heldKey) {
	s := w.d.opt.Store
	pipe := s.conn.Client.Pipeline()
	states, hashes := make([]*redis.Cmd, len(partitions)), make([]*redis.Cmd, len(keys))
	for i, partition := range partitions {
		states[i] = pipe.Do(ctx, "HMGET", s.prefix.StateKey(partition), "e", "q", "v", "d")
	}
	for i, k := range keys {
		hashes[i] = pipe.Do(ctx, s.readVerb(), k.name)
	}
	s.conn.RoundTrips.Add(1)
	scripts.Execute(ctx, pipe)
	for i, partition := range partitions {
		if state, err := states[i].Slice(); err != nil {
			delete(w.partitions, partition)
		} else {
			w.learn(partition, parsePartition(state))
		}
	}
	now := w.d.opt.Now()
	for i, k := range keys {
		k.fetching = false
		if k.err = s.readError(ctx, hashes[i].Err()); k.err != nil {
			continue
		}
		k.load(w.flatten(hashes[i]), now)
		w.guesses.learn(len(w.flat) > 0)
		if p := w.partitions[k.partition]; p != nil {
			k.known = p.known
		} else {
			k.err = errNotSent
		}
	}
}

// parsePartition parses the epoch, quieted, version and changes of a partition.
func parsePartition(state []any) heldPartition {
	v, _ := strconv.ParseInt(scripts.TextAt(state, 2), 10, 64)
	d, _ := strconv.ParseInt(scripts.TextAt(state, 3), 10, 64)
	return heldPartition{epoch: scripts.TextAt(state, 0), quieted: scripts.TextAt(state, 1),
		others: v - d}
}

// learn replaces what is known of a partition.
func (w *directWorker) learn(partition int, p heldPartition) {
	old := w.partitions[partition]
	p.known = old.known + 1
	*old = p
}

// flatten returns the fields and values of a reply, until the next one.
func (w *directWorker) flatten(cmd *redis.Cmd) []string {
	reply, _ := cmd.Val().([]any)
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
		k.load(w.flatten(cmds[i]), c.now)
		if c.err = k.err; c.err == nil {
			c.view = k.view(c.now)
			w.decider.read(c)
		}
		c.Finish(nil)
	}
}
