package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/syncer"
)

// distinctKey returns the name of the Hash with a key's distinct values.
func distinctKey(partition int, ns, key []byte) string {
	name, tag := Key(partition, ns, key), len(appendTag(nil, partition))
	return name[:tag] + "!d" + name[tag:]
}

// Distinct keeps distinct values in Redis. Make one with [Store.Distinct]. It is safe for
// concurrent use.
type Distinct struct{ store *Store }

// Distinct returns the distinct values that this Redis keeps.
func (s *Store) Distinct() *Distinct { return &Distinct{s} }

// Compare implements distinct.Store, with one script call for each key, all in one pipeline.
func (d *Distinct) Compare(ctx context.Context, list []*distinct.Exchange) {
	if err := d.store.ensureReady(ctx); err != nil {
		for _, x := range list {
			x.Err = err
		}
		return
	}
	calls := make([]*scriptCall, len(list))
	for i, x := range list {
		args := []any{x.Expect, x.Version, x.TTL, x.Mark, 0, len(x.Deletes)}
		if x.Reset {
			args[4] = 1
		}
		for j := range x.Deletes {
			args = append(args, Field(x.Deletes[j].Stretch))
		}
		for j := range x.Sets {
			args = append(args, Field(x.Sets[j].Stretch), x.Sets[j].Data)
		}
		calls[i] = &scriptCall{script: d.store.scripts.distinct, args: args,
			keys: []string{distinctKey(x.Partition, x.NS, x.Key)}}
	}
	d.store.run(ctx, calls)
	for i, x := range list {
		takeDistinct(x, calls[i])
	}
}

// takeDistinct reads the reply to a call into an exchange.
func takeDistinct(x *distinct.Exchange, c *scriptCall) {
	reply, err := c.cmd.Slice()
	if err != nil {
		switch {
		case c.mayHaveRun:
			err = fmt.Errorf("%w: %w", twotier.ErrUnknownOutcome, err)
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			err = fmt.Errorf("%w: %w", distinct.ErrForeign, err)
		case isRefusal(err):
			err = fmt.Errorf("%w: %w", syncer.ErrRefused, err)
		}
		late := c.late || isBusy(err) || c.mayHaveRun && isRefusal(err)
		x.Err = markLate(fmt.Errorf("distinct values: %w", err), late)
		return
	}
	x.Err, x.Found, x.FoundMark, x.Buckets = nil, textAt(reply, 0), "", nil
	if len(reply) < 2 {
		return
	}
	fields, _ := reply[1].([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		name := textAt(fields, i)
		if name == "r" {
			x.FoundMark = textAt(fields, i+1)
		} else if at, ok := parseField(name); ok {
			x.Buckets = append(x.Buckets,
				distinct.Bucket{Stretch: at, Data: []byte(textAt(fields, i+1))})
		}
	}
}
