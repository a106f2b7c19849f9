package redisstore

import (
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
	return execPipe(ctx, pipe)
}

// Deadlines returns the ids in each of the slots.
func (d *Deadlines) Deadlines(ctx context.Context, slots []int64) ([][]string, error) {
	if err := d.store.ensureReady(ctx); err != nil {
		return nil, err
	}
	pipe, replies := d.store.conn.Client.Pipeline(), make([]*redis.MapStringStringCmd, len(slots))
	for i, slot := range slots {
		replies[i] = pipe.HGetAll(ctx, d.store.prefix.DeadlinesKey(slot))
	}
	if err := execPipe(ctx, pipe); err != nil {
		return nil, err
	}
	ids := make([][]string, len(slots))
	for i, reply := range replies {
		for id := range reply.Val() {
			ids[i] = append(ids[i], id)
		}
	}
	return ids, nil
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
