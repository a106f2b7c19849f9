package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/ring"
)

// agreement returns the settings that the members of the cluster must have in common.
func (s *server) agreement() ring.Agreement {
	return ring.Agreement{
		Partitions: s.store.place.Partitions, Seed: s.store.place.Seed,
		Data: dataDigest(s.store.place, s.cfg.RedisPrefix),
	}
}

// dataDigest returns a digest of the namespaces that have hash tags and of the prefix of keys in
// Redis, on which all nodes must agree as on partitions and seed. It is 0 for the defaults.
func dataDigest(place twotier.Placement, prefix string) uint64 {
	h := fnv.New64a()
	none := h.Sum64()
	if place.HashTags != nil {
		fmt.Fprintf(h, "hash tags: %s\n", place.HashTags)
	}
	if prefix != redisstore.DefaultPrefix {
		fmt.Fprintf(h, "prefix: %s\n", prefix)
	}
	if h.Sum64() == none {
		return 0
	}
	return h.Sum64() >> 11 // 53 bits, which a JSON number holds exactly
}

// startAgreement keeps the settings that all users of a Redis must share in Redis, until disagree
// is called.
func (s *server) startAgreement() {
	ctx, cancel := context.WithCancel(context.Background())
	s.disagree = func() { cancel(); s.agreeing.Wait() }
	if s.store.redis != nil {
		s.adoptHoldSecret()
		s.agreeing.Go(func() { s.runAgree(ctx) })
	}
}

// adoptHoldSecret seals the ids of holds by the secret in Redis.
func (s *server) adoptHoldSecret() {
	secret := s.store.redis.HoldSecret()
	if secret != nil && !bytes.Equal(secret, s.holds.Sealer.Secret()) {
		s.holds.Sealer.SetSecret(secret)
	}
}

// agreeingStore keeps the settings that its users must share. redisstore.Store implements it.
type agreeingStore interface {
	EnsureAgreement(ctx context.Context) error
	Health() redisstore.Health
}

// runAgree makes sure of the agreement every second, and ends the server once its hash seed gave
// way to an older one.
func (s *server) runAgree(ctx context.Context) {
	for retry.Pause(ctx, redisstore.AgreeEvery) {
		if err := s.ensureAgreement(ctx, s.store.redis); err != nil {
			s.outdated <- err
			return
		}
		s.adoptHoldSecret()
	}
}

// ensureAgreement makes sure of the agreement once. It returns an error that wraps ErrOlderSeed if
// this process must be started again, and logs other errors.
func (s *server) ensureAgreement(ctx context.Context, store agreeingStore) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
	defer cancel()
	err := store.EnsureAgreement(ctx)
	if err != nil { // the flushes report it too
		s.log.Debug("can't read what all users of Redis must agree on", "error", err)
	}
	// An exchange under way may have replaced the error in the store's health, and a probe may have
	// met it there.
	for _, err := range []error{err, store.Health().Err} {
		if errors.Is(err, redisstore.ErrOlderSeed) {
			return err
		}
	}
	return nil
}
