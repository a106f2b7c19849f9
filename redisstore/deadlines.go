package redisstore

import (
	"cmp"
	"context"
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
