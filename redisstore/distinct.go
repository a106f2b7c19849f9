package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

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
	calls := make([]*scripts.Call, len(list))
	for i, x := range list {
		args := []any{x.Expect, x.Version, x.TTL, x.Head}
		for _, c := range x.Chunks {
			args = append(args, c.Index, c.Data)
		}
		calls[i] = &scripts.Call{Script: d.store.scripts.Distinct, Args: args,
			Keys: []string{d.store.prefix.DistinctKey(x.Partition, x.NS, x.Key)}}
	}
	d.store.runPipeline(ctx, calls)
	for i, x := range list {
		decodeDistinct(x, calls[i])
	}
}

// decodeDistinct decodes the reply to a call into an exchange.
func decodeDistinct(x *distinct.Exchange, c *scripts.Call) {
	reply, err := c.Cmd.Slice()
	if err != nil {
		switch {
		case c.MayHaveRun:
			err = fmt.Errorf("%w: %w", twotier.ErrUnknownOutcome, err)
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			err = fmt.Errorf("%w: %w", distinct.ErrForeign, err)
		case scripts.IsRefusal(err):
			err = fmt.Errorf("%w: %w", syncer.ErrRefused, err)
		}
		late := c.Late || scripts.IsBusy(err) || c.MayHaveRun && scripts.IsRefusal(err)
		x.Err = scripts.MarkLate(fmt.Errorf("distinct values: %w", err), late)
		return
	}
	x.Err, x.Found, x.Head, x.Chunks = nil, scripts.TextAt(reply, 0), nil, nil
	if len(reply) < 2 {
		return
	}
	fields, _ := reply[1].([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		name, data := scripts.TextAt(fields, i), []byte(scripts.TextAt(fields, i+1))
		if name == "h" {
			x.Head = data
		} else if at, err := strconv.Atoi(name); err == nil && at >= 0 &&
			at < leaparray.ValueChunks {
			x.Chunks = append(x.Chunks, distinct.Chunk{Index: at, Data: data})
		}
	}
}
