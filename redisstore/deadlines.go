package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

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
	return execPipe(ctx, pipe)
}

// Bounds of the ids that are read at once: about a page of each of a few slots.
const (
	slotsAtOnce   = 16
	deadlinesPage = 500
)

// Deadlines calls visit with the ids in each of the slots, in their order, about a page at a time.
func (d *Deadlines) Deadlines(ctx context.Context, slots []int64,
	visit func(slot int64, ids []string)) error {
	if err := d.store.ensureReady(ctx); err != nil {
		return err
	}
	for some := range slices.Chunk(slots, slotsAtOnce) {
		pipe, replies := d.store.conn.Client.Pipeline(), make([]*redis.ScanCmd, len(some))
		for i, slot := range some {
			replies[i] = d.scan(ctx, pipe, slot, 0)
		}
		if err := execPipe(ctx, pipe); err != nil {
			return err
		}
		for i, slot := range some {
			if err := d.visitSlot(ctx, slot, replies[i], visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// scan reads a page of a slot.
func (d *Deadlines) scan(ctx context.Context, by redis.Cmdable, slot int64,
	cursor uint64) *redis.ScanCmd {
	return by.HScan(ctx, d.store.prefix.DeadlinesKey(slot), cursor, "", deadlinesPage)
}

// visitSlot calls visit with the pages of a slot, of which it is given the first.
func (d *Deadlines) visitSlot(ctx context.Context, slot int64, page *redis.ScanCmd,
	visit func(slot int64, ids []string)) error {
	for {
		pairs, cursor, err := page.Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			err = nil
		}
		if err != nil {
			return err
		}
		ids := make([]string, 0, len(pairs)/2)
		for i := 0; i < len(pairs); i += 2 {
			ids = append(ids, pairs[i])
		}
		if visit(slot, ids); cursor == 0 {
			return nil
		}
		page = d.scan(ctx, d.store.conn.Client, slot, cursor)
	}
}

// execPipe executes commands. A slot whose name something else has taken is as good as absent: it
// must not keep the others from being read and written.
func execPipe(ctx context.Context, pipe redis.Pipeliner) error {
	commands, err := pipe.Exec(ctx)
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	for _, command := range commands {
		err := command.Err()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
	}
	return nil
}
