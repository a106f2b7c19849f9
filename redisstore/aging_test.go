package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// agingStore is an embedded store whose buckets go by age.
type agingStore struct{ *embedded.Store }

func (agingStore) Aging() bool { return true }

// ager deletes buckets by age, like a server that gives each a time to live, but by the test's
// clock. Of the buckets that may go, it deletes any, at random.
type ager struct {
	dice    *rand.Rand
	ladders map[string]*leaparray.Ladder
	now     func() int64
}

func (a ager) overdue(ns string, buckets []syncer.Bucket) (gone []syncer.Bucket) {
	l := a.ladders[ns]
	for _, b := range buckets {
		level := l.LevelOf(b.Level)
		if (b.Index+l.Keep(level)+1)*l.Width(level) <= a.now() &&
			a.dice.IntN(2) == 0 {
			gone = append(gone, b)
		}
	}
	return gone
}

// each calls fn for every key that randomOp draws.
func (a ager) each(place syncer.Placement, fn func(partition int, name string, ns, key []byte)) {
	for name := range a.ladders {
		ns := []byte(name)
		if name == syncer.DefaultNamespace {
			ns = nil
		}
		for i := range 4 {
			key := keyOf(name, i)
			fn(place.Of(ns, key), name, ns, key)
		}
	}
}

func (a ager) ageEmbedded(s *embedded.Store) {
	seq := uint64(a.now())
	a.each(syncer.Placement{Partitions: syncer.DefaultPartitions},
		func(partition int, name string, ns, key []byte) {
			gone := a.overdue(name, s.Get(partition, ns, key))
			s.Exchange(context.Background(), []*syncer.Round{{
				Partition: partition, Writer: fmt.Sprint("age ", name, string(key), seq), Seq: 1,
				Quiet: true,
				Keys:  []syncer.KeyRound{{NS: ns, Key: key, Expired: gone}},
			}})
		})
}

func (a ager) ageRedis(t *testing.T, s *redisstore.Store, place syncer.Placement) {
	a.each(place, func(partition int, name string, ns, key []byte) {
		hash := redisstore.Key(partition, ns, key)
		flat, err := s.Client().Do(t.Context(), "HGETALL", hash).Slice()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range a.overdue(name, redisstore.ParseBuckets(flat)) {
			if err := s.Client().HDel(t.Context(), hash,
				redisstore.Field(int(b.Level), b.Index)).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// opener opens a store that expires buckets in one of these ways.
type opener func(t *testing.T, opt redisstore.Options) *redisstore.Store

// expiries are the ways of expiring buckets that a server has, and buckets that go by the clock of
// the test: "aged".
func expiries(t *testing.T, each func(t *testing.T, open opener, aged bool)) {
	srv := redistest.Start(t)
	for _, e := range redistest.Expiries(t, srv) {
		for _, aged := range []bool{false, true} {
			if !aged && e != string(redisstore.ExpiryKey) {
				continue // the time to live of a field does not follow the test's clock
			}
			t.Run(fmt.Sprintf("%s, aged %v", e, aged), func(t *testing.T) {
				flushAll(t, srv)
				each(t, func(t *testing.T, opt redisstore.Options) *redisstore.Store {
					opt.URL, opt.Expiry = srv.URL(), redisstore.Expiry(e)
					s := open(t, opt)
					if aged {
						s.Age()
					}
					return s
				}, aged)
			})
		}
	}
}
