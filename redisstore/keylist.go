package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"twotier.dev/twotier/syncer"
)

const (
	// hashBytes is the size of a key's hash in the list of a partition's keys.
	hashBytes = 4
	// listBytes is how much of a list is read at a time: Redis copies it in some microseconds.
	listBytes = 64 << 10
)

// The script's findings about a list.
const (
	listComplete = 1
	listLost     = 2
)

func appendHash(b []byte, hash uint32) []byte { return binary.LittleEndian.AppendUint32(b, hash) }

// toList returns the hashes of the keys that a round adds to the list, and the longest of their
// times to live.
func toList(r *syncer.Round) (hashes []byte, ttl int64) {
	for i := range r.Keys {
		if k := &r.Keys[i]; k.Renew && !k.Listed {
			hashes = appendHash(hashes, syncer.KeyHash(k.NS, k.Key))
			ttl = max(ttl, k.TTL)
		}
	}
	return hashes, ttl
}

// allHashes returns the hashes of all keys of a round.
func allHashes(r *syncer.Round) (hashes []byte) {
	for i := range r.Keys {
		hashes = appendHash(hashes, syncer.KeyHash(r.Keys[i].NS, r.Keys[i].Key))
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
	calls := make([]*scriptCall, len(lists))
	for i, l := range lists {
		calls[i] = &scriptCall{script: s.scripts.keys, keys: []string{stateKey(l.Partition)},
			args: []any{l.Epoch, l.Part, l.Offset, listBytes, l.Told.Epoch, l.Told.Version,
				l.Told.Quieted, l.Told.LastChange}}
	}
	s.run(ctx, calls)
	for i, l := range lists {
		if l.Err = takeList(l, calls[i]); l.Err != nil {
			l.Err = fmt.Errorf("list keys: %w", l.Err)
		}
	}
}

var (
	errOlderKeys = fmt.Errorf("%w: some keys are older than the list", errors.ErrUnsupported)
	errNoEpoch   = errors.New("the partition has no data yet")
)

// takeList reads the reply to a call into a list.
func takeList(l *syncer.KeyList, c *scriptCall) error {
	reply, err := c.cmd.Slice()
	if err != nil {
		return err
	}
	l.Hashes, l.More = l.Hashes[:0], false
	if l.Lost = numberAt(reply, 0) == listLost; l.Lost {
		return nil
	}
	switch epoch, err := strconv.ParseUint(textAt(reply, 1), 10, 64); {
	case err != nil:
		return err
	case epoch == 0:
		return errNoEpoch
	case numberAt(reply, 0) != listComplete:
		return errOlderKeys
	default:
		l.Epoch = epoch
	}
	if len(reply) != 9 {
		return fmt.Errorf("%d values in the reply", len(reply))
	}
	l.Version, l.Quieted, l.LastChange = numberAt(reply, 2), numberAt(reply, 3), textAt(reply, 4)
	l.Part, l.Offset, l.Begun = numberAt(reply, 5), numberAt(reply, 6), numberAt(reply, 7) == 1
	takeHashes(l, textAt(reply, 8))
	return nil
}

func takeHashes(l *syncer.KeyList, hashes string) {
	l.More = len(hashes) == listBytes
	for ; len(hashes) >= hashBytes; hashes = hashes[hashBytes:] {
		l.Hashes = append(l.Hashes, binary.LittleEndian.Uint32([]byte(hashes[:hashBytes])))
	}
}

func numberAt(reply []any, i int) uint64 {
	n, _ := reply[i].(int64)
	return uint64(n)
}
