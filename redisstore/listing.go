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

	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// listBytes is how much of a list is read at a time: Redis copies it in some microseconds.
const listBytes = 64 << 10

// hashesToList returns the hashes of the keys that a round adds to the list, which are all that it
// restores, and the longest of their times to live.
func hashesToList(r *syncer.Round) (hashes []byte, ttl int64) {
	for i := range r.Keys {
		if k := &r.Keys[i]; r.Republish || k.Renew && !k.Listed {
			hashes = layout.AppendHash(hashes, syncer.KeyHash(k.NS, k.Key))
			ttl = max(ttl, k.TTL)
		}
	}
	return hashes, ttl
}

// listing is a reading of a list.
type listing struct {
	list *syncer.KeyList
	call *roundCall // whose round has the state of the partition, as it was last read
	next syncer.KeyList
	last uint64 // part of the list
}

var (
	errOlderKeys = fmt.Errorf("%w: some keys are older than the list", errors.ErrUnsupported)
	errNoEpoch   = errors.New("the partition has no data yet")
	errLostKeys  = errors.New("data was lost meanwhile")
)

// ListKeys implements syncer.Lister. It reads the states of the partitions, then the lists, and the
// states again. Within an epoch hashes are only appended, before a key is counted: a list that is
// read after a state has all keys of its version, unless the second state shows that data was lost.
func (s *Store) ListKeys(ctx context.Context, lists []*syncer.KeyList) {
	if err := s.ensureReady(ctx); err != nil {
		for _, l := range lists {
			l.Err = err
		}
		return
	}
	open := make([]*listing, len(lists))
	for i, l := range lists {
		open[i] = &listing{list: l, call: s.newReadCall(&syncer.Round{Partition: l.Partition,
			Epoch: l.Told.Epoch, Version: l.Told.Version, Quieted: l.Told.Quieted,
			LastChange: l.Told.LastChange})}
	}
	open = s.readLists(ctx, open, func(l *listing) error {
		if l.list.Lost = l.call.rounds[0].Lost; l.list.Lost {
			return nil
		}
		return s.choosePart(l)
	})
	open = slices.DeleteFunc(open, func(l *listing) bool { return l.list.Lost })
	s.readLists(ctx, open, (*listing).settle)
}

// readLists sends the calls of readings, and calls decode for those with an answer. It returns the
// readings without an error.
func (s *Store) readLists(ctx context.Context, open []*listing,
	decode func(*listing) error) (left []*listing) {
	calls := make([]*scripts.Call, len(open))
	for i, l := range open {
		calls[i] = &l.call.Call
	}
	s.runPipeline(ctx, calls)
	for _, l := range open {
		err := l.call.Err()
		if err == nil {
			s.decodeState(l.call.rounds[0], l.call)
			err = decode(l)
		}
		if l.list.Err = err; err != nil {
			l.list.Err = fmt.Errorf("list keys: %w", err)
			continue
		}
		left = append(left, l)
	}
	return left
}

// choosePart decides, by the state of the partition, what to read.
func (s *Store) choosePart(l *listing) error {
	r, next := l.call.rounds[0], &l.next
	state, _ := l.call.StateReply.Slice()
	switch {
	case r.Epoch == 0:
		return errNoEpoch
	case scripts.TextAt(state, 4) != "1":
		return errOlderKeys
	}
	l.last, _ = strconv.ParseUint(scripts.TextAt(state, 5), 10, 64)
	*next = *l.list
	next.Epoch, next.Version, next.Quieted, next.LastChange = r.Epoch, r.Version, r.Quieted,
		r.LastChange
	next.Begun = l.list.Epoch != r.Epoch || next.Part+1 < l.last || next.Part > l.last
	if next.Begun { // the part before the last one is the oldest, if it is there
		next.Part, next.Offset = min(l.last, max(l.last, 2)-1), 0
	}
	l.call = s.newReadCall(r)
	l.call.Commands = [][]any{{"GETRANGE", s.prefix.ListKey(l.list.Partition, next.Part),
		next.Offset, next.Offset + listBytes - 1}}
	return nil
}

// settle advances a list by what was read of it. Only the last part of a list still grows.
func (l *listing) settle() error {
	hashes, err := l.call.Reads[0].Text()
	switch {
	case err != nil:
		return err
	case l.call.rounds[0].Lost:
		return errLostKeys
	}
	next := &l.next
	next.Hashes, next.More = layout.ParseHashes(hashes, next.Hashes[:0]), len(hashes) == listBytes
	if next.Offset += uint64(len(hashes)); !next.More && next.Part < l.last {
		next.Part, next.Offset, next.More = l.last, 0, true
	}
	*l.list = *next
	return nil
}

// Deadlines keeps ids by the times at which something has to be done with them. A slot, which
// begins at a time in unix milliseconds, is a Hash whose fields are ids.
type Deadlines struct {
	store *Store
	kept  time.Duration
}

// Deadlines returns the deadlines that this Redis keeps, each slot for so long after it has begun.
func (s *Store) Deadlines(kept time.Duration) *Deadlines { return &Deadlines{s, kept} }

// ChangeDeadlines adds ids to slots, and then removes others.
func (d *Deadlines) ChangeDeadlines(ctx context.Context, add, remove map[int64][]string) error {
	if err := d.store.ensureReady(ctx); err != nil {
		return err
	}
	pipe := d.store.conn.Client.Pipeline()
	for slot, ids := range add {
		key := d.store.prefix.DeadlinesKey(slot)
		values := make([]any, 0, 2*len(ids))
		for _, id := range ids {
			values = append(values, id, "")
		}
		pipe.HSet(ctx, key, values...)
		pipe.PExpireAt(ctx, key, time.UnixMilli(slot).Add(d.kept))
	}
	for slot, ids := range remove {
		pipe.HDel(ctx, d.store.prefix.DeadlinesKey(slot), ids...)
	}
	commands, err := pipe.Exec(ctx)
	err = unlessTaken(err)
	for _, command := range commands {
		err = cmp.Or(err, unlessTaken(command.Err()))
	}
	return err
}

// unlessTaken leaves out the error about a slot whose name something else has taken: it is as good
// as absent, and must not keep the others from being read and written.
func unlessTaken(err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil
	}
	return err
}

// deadlinesPage is how many ids are read at once, about.
const deadlinesPage = 500

// Deadlines calls visit with the ids in each of the slots, in their order, about a page at a time.
func (d *Deadlines) Deadlines(ctx context.Context, slots []int64,
	visit func(slot int64, ids []string)) error {
	if err := d.store.ensureReady(ctx); err != nil {
		return err
	}
	for _, slot := range slots {
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			pairs, next, err := d.store.conn.Client.HScan(ctx, d.store.prefix.DeadlinesKey(slot),
				cursor, "", deadlinesPage).Result()
			if err := unlessTaken(err); err != nil {
				return err
			}
			cursor = next
			ids := make([]string, 0, len(pairs)/2)
			for i := 0; i < len(pairs); i += 2 {
				ids = append(ids, pairs[i])
			}
			visit(slot, ids)
		}
	}
	return nil
}
