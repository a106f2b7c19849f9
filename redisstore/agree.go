package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/syncer"
)

// layout is the version of the layout. Those before 4 counted every event in all levels.
const layout = "4"

// Fields of tt:meta that say how keys are named and placed.
const (
	layoutField = "layout"
	seedField   = "hash-seed"
	// sinceField says since when, by Redis's clock in milliseconds, keys have been placed by the
	// seed: if Redis loses it and another one is drawn before that is noticed, the older one stays.
	// It is not there if that was before there was such a field.
	sinceField = "hash-seed-since"
	// tagsField names the namespaces with hash tags. It is one field for all of them, so that the
	// first store to write it decides for every namespace, listed or not.
	tagsField = "hash-tags"
)

// Placement returns how keys are placed: as the options say or, with AnySeed, as Redis says once a
// probe has succeeded.
func (s *Store) Placement() syncer.Placement { return s.opt.Placement }

// agree checks this store's configuration against tt:meta, which the first store wrote.
func (s *Store) agree(ctx context.Context) error {
	for {
		have, err := s.readMeta(ctx)
		if err != nil {
			return err
		}
		if done, err := s.takeSeed(ctx, have); err != nil {
			return err
		} else if !done {
			continue
		}
		// Compare before writing: a node that is refused must not leave anything behind that others
		// would be compared with.
		if err := s.compare(s.agreement(), have); err != nil {
			return err
		}
		written, err := s.writeMissing(ctx, have)
		if err != nil {
			return err
		}
		if !written {
			s.settle(have)
			return nil
		} // else see whose have been written
	}
}

// AgreeEvery is how often each process that uses the store must call [Store.Agree].
const AgreeEvery = time.Second

// Agree makes sure that Redis still has what all users of the data must agree on. It may have lost
// that, and perhaps nobody counts anything by which that would be noticed. The next process to
// start would take what it finds, and not fit to the others.
func (s *Store) Agree(ctx context.Context) error {
	if !s.ready.Load() {
		return nil // the probe before the next exchange does this
	}
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	seed, err := s.client.HGet(ctx, metaKey, seedField).Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return fmt.Errorf("read %s: %w", metaKey, err)
	case seed == s.agreement()[seedField]:
		return nil
	}
	if err = s.agree(ctx); errors.Is(err, ErrMismatch) {
		s.opt.Logger.Error("Redis can't be used any more", "error", err)
		s.ready.Store(false)
		s.setFailed(err)
	}
	return err
}

// readMeta reads tt:meta. Data without a field for hash tags was placed without them, because that
// field has been written along with the others for as long as there are hash tags.
func (s *Store) readMeta(ctx context.Context) (map[string]string, error) {
	have, err := s.client.HGetAll(ctx, metaKey).Result()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", metaKey, err)
	}
	if _, ok := have[tagsField]; !ok && len(have) > 0 {
		have[tagsField] = syncer.HashTags(nil).String()
	}
	return have, nil
}

// writeMissing writes the fields that Redis does not have, if there are any.
func (s *Store) writeMissing(ctx context.Context, have map[string]string) (some bool, err error) {
	var args []any
	want := s.agreement()
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if _, ok := have[field]; !ok {
			args = append(args, field, "", want[field])
		}
	}
	if _, ok := have[seedField]; !ok {
		since := s.since
		if since == "" {
			now, err := s.client.Time(ctx).Result()
			if err != nil {
				return false, fmt.Errorf("time: %w", err)
			}
			since = strconv.FormatInt(now.UnixMilli(), 10)
		}
		args = append(args, sinceField, have[sinceField], since)
	}
	if len(args) == 0 {
		return false, nil
	}
	_, err = s.changeMeta(ctx, args)
	return true, err
}

// changeMeta writes fields, all of them or none. It reports false if another process was faster.
func (s *Store) changeMeta(ctx context.Context, args []any) (done bool, err error) {
	reply, err := s.scripts.meta.Run(ctx, s.client, []string{metaKey}, args...).Int()
	if err != nil {
		return false, fmt.Errorf("write %s: %w", metaKey, err)
	}
	return reply == 1, nil
}

// takeSeed adopts the seed that Redis has, if any seed will do. Once keys have been placed by a
// seed, it stays: if Redis then loses its data and a new node draws another seed, the older nodes
// restore theirs, and the new one is refused. It reports false if that is to be read again.
func (s *Store) takeSeed(ctx context.Context, have map[string]string) (done bool, err error) {
	text, ok := have[seedField]
	mine := s.agreement()[seedField]
	switch {
	case !ok, s.since == "" && !s.opt.AnySeed, s.since != "" && text == mine:
		return true, nil
	case s.since != "" && s.givesWay(text, since(have)):
		return false, fmt.Errorf("%w: it lost data, and processes that were there before this one "+
			"place keys by another hash seed: start this one again", ErrMismatch)
	case s.since != "":
		_, err := s.changeMeta(ctx, []any{seedField, text, mine,
			sinceField, have[sinceField], s.since})
		return false, err
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err == nil {
		s.opt.Placement.Seed = seed
	}
	return true, nil // text that is not a number will not compare as equal
}

// since returns the time in sinceField, 0 if that is not there.
func since(have map[string]string) string { return cmp.Or(have[sinceField], "0") }

// givesWay reports whether another seed, by which keys have been placed since a time, stays rather
// than this store's: the older one, and of two that were drawn in the same millisecond the smaller,
// so that of two stores exactly one gives way.
func (s *Store) givesWay(seed, since string) bool {
	theirs, err := strconv.ParseInt(since, 10, 64)
	mine, other := strconv.ParseInt(s.since, 10, 64)
	if err != nil || other != nil || mine != theirs {
		return err == nil && other == nil && mine > theirs
	}
	number, err := strconv.ParseUint(seed, 10, 64)
	return err == nil && number < s.opt.Placement.Seed
}

// settle notes that keys are from now on placed as is agreed.
func (s *Store) settle(have map[string]string) {
	s.agreed = true
	if _, ok := have[seedField]; ok && s.since == "" {
		s.since = since(have)
	}
}

// agreement returns what all users of the data must have in common.
func (s *Store) agreement() map[string]string {
	want := map[string]string{
		layoutField:  layout,
		"partitions": strconv.Itoa(s.opt.Placement.Partitions),
		seedField:    strconv.FormatUint(s.opt.Placement.Seed, 10),
		tagsField:    s.opt.Placement.HashTags.String(),
		"hash-type":  "hash",
		// A node that does not know that fields expire would make some that don't.
		"redis-expiry": string(s.opt.Expiry),
	}
	if s.opt.Expiry == ExpiryTairhash {
		want["hash-type"] = "tairhash"
	}
	return want
}

// compare refuses values that differ.
func (s *Store) compare(want, have map[string]string) error {
	if stored, ok := have[layoutField]; ok && stored != layout {
		return fmt.Errorf("%w: its counts have layout %s, which another release has made, and "+
			"this one makes and reads layout %s: use another Redis (or database) or, once those "+
			"counts don't matter and no other release uses it, delete all keys that begin "+
			"with %s", ErrMismatch, stored, layout, anyPrefix)
	}
	for _, field := range slices.Sorted(maps.Keys(want)) {
		value := want[field]
		if stored, ok := have[field]; ok && stored != value {
			return fmt.Errorf("%w: its counts were made with %s = %s, this node has %s; use the "+
				"same, another Redis (or database), or write what this node has into the field "+
				"%q of the hash %s once those counts don't matter", ErrMismatch,
				field, stored, value, field, metaKey)
		}
	}
	return nil
}
