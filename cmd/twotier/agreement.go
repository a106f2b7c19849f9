package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// agreement returns what the members of the cluster must have in common.
func (s *server) agreement() ring.Agreement {
	a := ring.Agreement{
		Partitions: s.store.place.Partitions, Seed: s.store.place.Seed,
		Data: dataOf(s.store.place), Ladders: laddersOf(s.store),
	}
	if s.store.redis != nil {
		a.Compared, a.Learn = s.store.redis.Compared, s.store.redis.Learn
	}
	return a
}

// dataOf returns a digest of what all nodes must agree on besides partitions and seed: which
// namespaces have hash tags.
func dataOf(place syncer.Placement) uint64 {
	if place.HashTags == nil {
		return 0
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "hash tags: %s\n", place.HashTags)
	return h.Sum64() >> 11 // 53 bits, which a JSON number holds exactly
}

// laddersOf returns a digest of the ladders. A namespace with the default one needs not be listed.
func laddersOf(st stores) uint32 {
	h, usual := fnv.New32a(), st.ladders[config.DefaultNamespace].String()
	fmt.Fprintln(h, usual)
	for _, name := range slices.Sorted(maps.Keys(st.ladders)) {
		if text := st.ladders[name].String(); text != usual {
			fmt.Fprintf(h, "%s=%s\n", name, text)
		}
	}
	return h.Sum32()
}

// hearing is how long a node that counts by less than others rely on waits until they have heard of
// it.
const hearing = 3 * redisstore.FollowEvery

// join tells the other users of Redis what this node counts by. Until then nothing is written
// there.
func (s *server) join(ctx context.Context) error {
	if s.store.redis == nil {
		return nil
	}
	lessens, err := s.joinStore(ctx)
	switch {
	case isPermanent(err) && !s.store.optional, err != nil && s.store.redis.Unnumbered():
		return err
	case err != nil:
		s.log.Warn("Redis does not answer: other nodes do not know this one's ladders yet",
			"error", err)
	case lessens:
		s.log.Info("others rely on buckets that this node does not count: waiting until they have "+
			"heard of it", "for", hearing)
		retry.Pause(ctx, hearing)
	}
	s.announceNumbers(ctx)
	return nil
}

// joinStore tells Redis. A node that does not know yet how its levels are numbered can't do without
// an answer, so it waits.
func (s *server) joinStore(ctx context.Context) (lessens bool, err error) {
	for warned := false; ; {
		attempt, cancel := context.WithTimeout(ctx, probeTimeout)
		lessens, err = s.store.redis.Join(attempt)
		cancel()
		if err == nil || isPermanent(err) || !s.store.redis.Unnumbered() {
			return lessens, err
		}
		if !warned {
			s.log.Warn("Redis does not answer: waiting for it, it says how levels are numbered",
				"error", err)
			warned = true
		}
		if !retry.Pause(ctx, seedPause) {
			return false, err
		}
	}
}

// announceNumbers tells other nodes how the levels are numbered, if that has changed.
func (s *server) announceNumbers(ctx context.Context) {
	if s.ring != nil {
		s.ring.SetNumbers(ctx, s.store.redis.Numbers())
	}
}

// follow keeps learning what other nodes count by, until unfollow is called.
func (s *server) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	s.unfollow = func() { cancel(); s.following.Wait() }
	if s.store.redis != nil {
		s.following.Go(func() { s.runFollow(ctx) })
	}
}

func (s *server) runFollow(ctx context.Context) {
	tick := time.NewTicker(redisstore.FollowEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.learn(ctx)
		}
	}
}

// learn asks Redis once. An error is no news: the flushes have it too.
func (s *server) learn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
	defer cancel()
	if err := s.store.redis.Follow(ctx, s.alike()); err != nil {
		s.log.Debug("can't read what other nodes count by", "error", err)
	}
	s.announceNumbers(ctx)
}

// alike reports whether all members have the ladders of this node.
func (s *server) alike() bool {
	if s.ring == nil {
		return true
	}
	table, mine := s.ring.Table(), s.ring.Self().Ladders
	for i := range table.Len() {
		if table.Member(i).Ladders != mine {
			return false
		}
	}
	return true
}
