package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/warning"
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

// addRoster makes the part that lists the nodes that use the same Redis. Without Redis, no other
// process uses the same data.
func (s *server) addRoster(opt *node.Options) {
	if s.store.redis == nil {
		return
	}
	list := roster.Options{Store: listedNodes{s.store.redis.Nodes()}, Report: s.warnOfNodes,
		Timeout: s.cfg.RedisTimeout, Logger: s.log}
	name := s.cfg.Node + "-" + rand.Text()[:8]
	if s.ring != nil {
		list.Gossip, name = s.ring, s.ring.Name()
	}
	list.Self = func() roster.Entry {
		return roster.Entry{Name: name, ID: s.cfg.Node, Gossip: s.gossipAddr(),
			Address: cmp.Or(s.cfg.Advertise, s.http.Addr().String()),
			InStore: s.node.Mode() == cluster.Redis}
	}
	s.roster = roster.New(list)
	opt.Roster = s.roster
}

// listedNodes keeps the entries of processes in Redis as JSON. It implements roster.Store.
type listedNodes struct{ records *redisstore.Nodes }

// RenewEntry implements roster.Store. It skips an entry that another release has written in another
// form.
func (l listedNodes) RenewEntry(ctx context.Context, e roster.Entry,
	lease time.Duration) (all []roster.Entry, err error) {
	text, _ := json.Marshal(e) // a struct of strings always marshals
	records, err := l.records.Renew(ctx, e.Name, string(text), lease)
	for _, r := range records {
		e := roster.Entry{Name: r.Name, Until: r.Until, Left: r.Left}
		if json.Unmarshal([]byte(r.Text), &e) == nil {
			all = append(all, e)
		}
	}
	return all, err
}

// RemoveEntries implements roster.Store.
func (l listedNodes) RemoveEntries(ctx context.Context, names ...string) error {
	return l.records.Remove(ctx, names...)
}

// warnOfNodes replaces the warnings about processes that use the same data and are not members of
// this node's cluster.
func (s *server) warnOfNodes(strangers []roster.Entry) {
	list := make([]warning.Warning, len(strangers))
	for i := range strangers {
		list[i] = warning.Warning{Code: warning.UnmetNode, At: "node " + strangers[i].String(),
			Reason: fmt.Sprintf("it uses the same Redis and --redis-prefix %s, and is no member "+
				"of the cluster of this node: both decide about the same keys, so limits are "+
				"exceeded", s.cfg.RedisPrefix),
			Instead: "another --redis-prefix for one of the clusters; if they are one, --join " +
				"with all nodes, one --cluster-secret, and --gossip open for TCP and UDP"}
	}
	s.warnings.Replace(warning.Nodes, list)
}
