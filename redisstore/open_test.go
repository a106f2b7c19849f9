package redisstore_test

import (
	"context"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

func defaultLadder(t testing.TB) *leaparray.Ladder {
	return ladderOf(t, leaparray.DefaultLevels()...)
}

func ladderOf(t testing.TB, levels ...leaparray.Level) *leaparray.Ladder {
	t.Helper()
	l, err := leaparray.NewLadder(leaparray.DefaultExact, levels...)
	must.Succeed(t, err)
	return l
}

// prefix names the keys of stores whose options have no prefix.
const prefix = layout.DefaultPrefix

// second is the tests' bucket when the choice does not matter.
var second = leaparray.Stretch{Start: 1_763_000_000_000, Width: 1000}

// counts returns a bucket of n events.
func counts(at leaparray.Stretch, n int64) syncer.Bucket {
	return syncer.Bucket{Stretch: at, N: n}
}

func ladders(l *leaparray.Ladder) map[string]*leaparray.Ladder {
	return map[string]*leaparray.Ladder{twotier.DefaultNamespace: l}
}

// open returns a store that is closed with the test. It fills in the ladders, and a timeout that is
// long enough for a busy machine.
func open(t testing.TB, opt redisstore.Options) *redisstore.Store {
	t.Helper()
	if opt.Ladders == nil {
		opt.Ladders = ladders(defaultLadder(t))
	}
	if opt.Timeout == 0 {
		opt.Timeout = 5 * time.Second
	}
	s, err := redisstore.New(opt)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func flushAll(t testing.TB, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		must.Succeed(t, s.Do("FLUSHALL").Err())
	}
}

// tellingStore gives the conformance suite a view of Redis.
type tellingStore struct {
	*redisstore.Store
}

var (
	_ storetest.TTLer   = tellingStore{}
	_ storetest.Spoiler = tellingStore{}
)

func (s tellingStore) TTL(t testing.TB, partition int, ns, key []byte) time.Duration {
	t.Helper()
	d, err := s.Client().PTTL(context.Background(), s.Name(partition, ns, key)).Result()
	must.Succeed(t, err)
	return max(0, d)
}

func (s tellingStore) Spoil(t testing.TB, partition int, ns, key []byte) {
	t.Helper()
	must.Succeed(t, s.Client().LPush(context.Background(), s.Name(partition, ns, key),
		"x").Err())
}
