package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

const (
	// listBytes is how much of a list is read at a time: Redis copies it in some microseconds.
	listBytes = 64 << 10
)

// The script's findings about a list.
const (
	listComplete = 1
	listLost     = 2
)

// hashesToList returns the hashes of the keys that a round adds to the list, and the longest of
// their times to live.
func hashesToList(r *syncer.Round) (hashes []byte, ttl int64) {
	for i := range r.Keys {
		if k := &r.Keys[i]; k.Renew && !k.Listed {
			hashes = layout.AppendHash(hashes, syncer.KeyHash(k.NS, k.Key))
			ttl = max(ttl, k.TTL)
		}
	}
	return hashes, ttl
}

// allHashes returns the hashes of all keys of a round.
func allHashes(r *syncer.Round) (hashes []byte) {
	for i := range r.Keys {
		hashes = layout.AppendHash(hashes, syncer.KeyHash(r.Keys[i].NS, r.Keys[i].Key))
	}
	return hashes
}

// ListKeys implements syncer.Lister with one script call for each list, all in one pipeline.
func (s *Store) ListKeys(ctx context.Context, lists []*syncer.KeyList) {
	if err := s.ensureReady(ctx); err != nil {
		for _, l := range lists {
			l.Err = err
		}
		return
	}
	calls := make([]*scripts.Call, len(lists))
	for i, l := range lists {
		calls[i] = &scripts.Call{Script: s.scripts.Keys,
			Keys: []string{s.prefix.StateKey(l.Partition)},
			Args: []any{l.Epoch, l.Part, l.Offset, listBytes, l.Told.Epoch, l.Told.Version,
				l.Told.Quieted, l.Told.LastChange}}
	}
	s.runPipeline(ctx, calls)
	for i, l := range lists {
		if l.Err = decodeList(l, calls[i]); l.Err != nil {
			l.Err = fmt.Errorf("list keys: %w", l.Err)
		}
	}
}

var (
	errOlderKeys = fmt.Errorf("%w: some keys are older than the list", errors.ErrUnsupported)
	errNoEpoch   = errors.New("the partition has no data yet")
)

// decodeList decodes the reply to a call into a list.
func decodeList(l *syncer.KeyList, c *scripts.Call) error {
	reply, err := c.Cmd.Slice()
	if err != nil {
		return err
	}
	l.Hashes, l.More = l.Hashes[:0], false
	if l.Lost = scripts.NumberAt(reply, 0) == listLost; l.Lost {
		return nil
	}
	switch epoch, err := strconv.ParseUint(scripts.TextAt(reply, 1), 10, 64); {
	case err != nil:
		return err
	case epoch == 0:
		return errNoEpoch
	case scripts.NumberAt(reply, 0) != listComplete:
		return errOlderKeys
	default:
		l.Epoch = epoch
	}
	if len(reply) != 9 {
		return fmt.Errorf("%d values in the reply", len(reply))
	}
	l.Version, l.Quieted = scripts.NumberAt(reply, 2), scripts.NumberAt(reply, 3)
	l.LastChange = scripts.TextAt(reply, 4)
	l.Part, l.Offset = scripts.NumberAt(reply, 5), scripts.NumberAt(reply, 6)
	l.Begun = scripts.NumberAt(reply, 7) == 1
	hashes := scripts.TextAt(reply, 8)
	l.More, l.Hashes = len(hashes) == listBytes, layout.ParseHashes(hashes, l.Hashes)
	return nil
}
