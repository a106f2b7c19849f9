package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/layout"
)

// Fields of PREFIX:meta that define how keys are named and placed.
const (
	layoutField = "layout"
	seedField   = "hash-seed"
	// sinceField holds the time, by Redis's clock in milliseconds, since which keys have been
	// placed by the seed. If Redis loses the seed and another one is drawn before the loss is
	// noticed, the older seed stays.
	sinceField = "hash-seed-since"
	// tagsField names the namespaces with hash tags. It is one field for all of them, so that the
	// first store to write it decides for every namespace, listed or not.
	tagsField = "hash-tags"
)

// ErrOlderSeed wraps [ErrMismatch]: after a loss of data this store placed keys by a new seed, and
// then processes with an older seed restored theirs. A process with AnySeed adopts that seed when
// it starts again.
var ErrOlderSeed = fmt.Errorf("%w: it lost data, and processes that were there before this one "+
	"place keys by another hash seed: start this one again", ErrMismatch)

// Placement returns how keys are placed: by the options or, with AnySeed, by Redis's seed once a
// probe has succeeded.
func (s *Store) Placement() twotier.Placement { return s.opt.Placement }

// reconcileMeta checks this store's configuration against PREFIX:meta, which the first store wrote.
func (s *Store) reconcileMeta(ctx context.Context) error {
	for {
		have, err := s.readMeta(ctx)
		if err != nil {
			return err
		}
		if done, err := s.adoptSeed(ctx, have); err != nil {
			return err
		} else if !done {
			continue
		}
		// Compare before writing: a refused node must leave nothing behind that others would be
		// compared with.
		if err := s.metaMismatch(s.wantedMeta(), have); err != nil {
			return err
		}
		written, err := s.writeMissing(ctx, have)
		if err != nil {
			return err
		}
		if !written {
			s.agreed = true
			if s.since == 0 {
				s.since = placedSince(have)
			}
			s.adoptSecret(have)
			return nil
		} // else read again whose values were written
	}
}

// AgreeEvery is how often each process that uses the store must call [Store.EnsureAgreement].
const AgreeEvery = time.Second

// EnsureAgreement makes sure that Redis still has the values that all users of the data must agree
// on. Redis may have lost them while nobody counts anything that would reveal the loss. The next
// process to start would then adopt the values it finds, and not fit the others.
func (s *Store) EnsureAgreement(ctx context.Context) error {
	if !s.ready.Load() {
		return nil // the probe before the next exchange does this
	}
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	key := s.prefix.MetaKey()
	have, err := s.conn.Client.HMGet(ctx, key, seedField, secretField).Result()
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", key, err)
	case have[0] == any(s.wantedMeta()[seedField]) && have[1] == any(hexSecret(s.HoldSecret())):
		return nil
	}
	if err = s.reconcileMeta(ctx); errors.Is(err, ErrMismatch) {
		s.opt.Logger.Error("Redis can't be used any more", "error", err)
		s.ready.Store(false)
		s.conn.SetFailed(err)
	}
	return err
}

func (s *Store) readMeta(ctx context.Context) (map[string]string, error) {
	have, err := s.conn.Client.HGetAll(ctx, s.prefix.MetaKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.prefix.MetaKey(), err)
	}
	return have, nil
}

// writeMissing writes the fields that Redis lacks, and reports whether there were any.
func (s *Store) writeMissing(ctx context.Context, have map[string]string) (some bool, err error) {
	var args []any
	want := s.wantedMeta()
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if _, ok := have[field]; !ok {
			args = append(args, field, "", want[field])
		}
	}
	if _, ok := have[seedField]; !ok {
		since := s.since
		if since == 0 {
			now, err := s.conn.Client.Time(ctx).Result()
			if err != nil {
				return false, fmt.Errorf("time: %w", err)
			}
			since = now.UnixMilli()
		}
		args = append(args, sinceField, have[sinceField], since)
	}
	if _, ok := have[secretField]; !ok {
		args = append(args, secretField, "", s.secretText())
	}
	if len(args) == 0 {
		return false, nil
	}
	return true, s.changeMeta(ctx, args...)
}

// changeMeta writes fields, or none of them if another process was faster.
func (s *Store) changeMeta(ctx context.Context, args ...any) error {
	key := s.prefix.MetaKey()
	err := s.scripts.Fields.Run(ctx, s.conn.Client, []string{key}, args...).Err()
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// adoptSeed adopts Redis's seed if any seed will do. Once keys have been placed by a seed, it
// stays: if Redis then loses its data and a new node draws another seed, the older nodes restore
// theirs, and the new one fails with ErrOlderSeed. It reports false if PREFIX:meta must be read
// again.
func (s *Store) adoptSeed(ctx context.Context, have map[string]string) (done bool, err error) {
	text, ok := have[seedField]
	mine := s.wantedMeta()[seedField]
	switch {
	case !ok, s.since == 0 && !s.opt.AnySeed:
		return true, nil
	case s.since > 0 && text == mine:
		return s.restoreSecret(ctx, have)
	case s.since > 0 && s.seedGivesWay(text, placedSince(have)):
		if s.opt.AnySeed {
			return false, ErrOlderSeed
		}
		return true, nil // text will not compare as equal
	case s.since > 0:
		return false, s.changeMeta(ctx, seedField, text, mine,
			sinceField, have[sinceField], s.since, secretField, have[secretField], s.secretText())
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err == nil {
		s.opt.Placement.Seed = seed
	}
	return true, nil // text that is not a number will not compare as equal
}

// placedSince returns the time in sinceField, the earliest possible one if Redis lacks the field.
func placedSince(have map[string]string) int64 {
	since, _ := strconv.ParseInt(have[sinceField], 10, 64)
	return max(since, 1)
}

// seedGivesWay reports whether this store's seed gives way to another one, by which keys have been
// placed since the given time. The older seed stays and, of two drawn in the same millisecond, the
// smaller one, so that of two stores exactly one gives way.
func (s *Store) seedGivesWay(seed string, since int64) bool {
	if s.since != since {
		return s.since > since
	}
	number, err := strconv.ParseUint(seed, 10, 64)
	return err == nil && number < s.opt.Placement.Seed
}

// wantedMeta returns the values that all users of the data must have in common.
func (s *Store) wantedMeta() map[string]string {
	want := map[string]string{
		layoutField:  layout.Version,
		"partitions": strconv.Itoa(s.opt.Placement.Partitions),
		seedField:    strconv.FormatUint(s.opt.Placement.Seed, 10),
		tagsField:    s.opt.Placement.HashTags.String(),
		"hash-type":  "hash",
		// A node unaware of field expiry would make fields that never expire.
		"redis-expiry": string(s.opt.Expiry),
	}
	if s.opt.Expiry == ExpiryTairhash {
		want["hash-type"] = "tairhash"
	}
	return want
}

// metaMismatch returns ErrMismatch if a stored value differs from the wanted one.
func (s *Store) metaMismatch(want, have map[string]string) error {
	if stored, ok := have[layoutField]; ok && stored != layout.Version {
		return fmt.Errorf("%w: its counts have layout %s, which another release has made, and "+
			"this one makes and reads layout %s: use another Redis (or database, or "+
			"--redis-prefix) or, once those counts don't matter and no other release uses it, "+
			"delete all keys that begin with %s", ErrMismatch, stored, layout.Version,
			s.prefix.Start())
	}
	for _, field := range slices.Sorted(maps.Keys(want)) {
		value := want[field]
		if stored, ok := have[field]; ok && stored != value {
			return fmt.Errorf("%w: its counts were made with %s = %s, this node has %s; use the "+
				"same, another Redis (or database, or --redis-prefix), or write what this node "+
				"has into the field %q of the hash %s once those counts don't matter", ErrMismatch,
				field, stored, value, field, s.prefix.MetaKey())
		}
	}
	return nil
}

// secretField of PREFIX:meta holds the secret by which the ids of holds are sealed, in hexadecimal.
const secretField = "hold-secret"

// HoldSecret returns the secret that all users of the data have in common, or nil until a probe has
// succeeded. If Redis loses it, a store that has it writes it again.
func (s *Store) HoldSecret() []byte {
	if secret := s.secret.Load(); secret != nil {
		return *secret
	}
	return nil
}

func (s *Store) adoptSecret(have map[string]string) {
	if secret, err := hex.DecodeString(have[secretField]); err == nil && len(secret) > 0 {
		s.secret.Store(&secret)
	}
}

// restoreSecret writes this store's secret over a younger one that Redis has with the same seed:
// Redis lost the older one, and a new process with a configured seed has made another. It reports
// false if PREFIX:meta must be read again.
func (s *Store) restoreSecret(ctx context.Context, have map[string]string) (done bool, err error) {
	mine, theirs := hexSecret(s.HoldSecret()), have[secretField]
	if mine == "" || theirs == "" || theirs == mine || s.since >= placedSince(have) {
		return true, nil
	}
	return false, s.changeMeta(ctx, sinceField, have[sinceField], s.since,
		secretField, theirs, mine)
}

// hexSecret returns the text of a secret in Redis, or "" if there is none.
func hexSecret(secret []byte) string { return hex.EncodeToString(secret) }

// secretText returns the secret to write where Redis has none: this store's, or a new one.
func (s *Store) secretText() string {
	secret := s.HoldSecret()
	if secret == nil {
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
	}
	return hexSecret(secret)
}
