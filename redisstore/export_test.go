package redisstore

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/syncer"
)

// Client is the connection, to look at Redis in tests.
func (s *Store) Client() redis.UniversalClient { return s.client }

// Age has the store take it that buckets go by age, though it is the test that deletes them: by the
// time of its own clock.
func (s *Store) Age() {
	if s.opt.Expiry == ExpiryKey {
		s.scripts = scriptsOf(strings.Replace(expiryKeyLua, "AGING = false", "AGING = true", 1))
	}
	s.aging = true
}

// Commands are all that are used, as the rules of an ACL name them.
func Commands(e Expiry) []string { return commands(e) }

// ParseBuckets reads the reply of HGETALL.
func ParseBuckets(reply []any) []syncer.Bucket { return parseBuckets(reply, nil) }

// StateKey and WriterKey are names beside the counts of a partition.
func StateKey(partition int) string { return stateKey(partition) }

// WriterKey is where the sequence of a writer is kept.
func WriterKey(partition int, writer string) string { return writerKey(partition, writer) }

// MetaKey is where the layout is described.
const MetaKey = metaKey

// Address is Key for a key of the default namespace.
func (s *Store) Address(key string) string {
	return Key(s.opt.Placement.Of(nil, []byte(key)), nil, []byte(key))
}

// Partition is where a key of the default namespace is.
func (s *Store) Partition(key string) int { return s.opt.Placement.Of(nil, []byte(key)) }

// MaxWaiting is how many operations may wait for a lane.
const MaxWaiting = maxWaiting

var _ syncer.Store = (*Store)(nil)

// Pack and Unpack are how numbers go to a script and come back.
func Pack(numbers ...int64) []byte {
	g := directScript{packed: appendPackedHead(nil)}
	g.pack(numbers...)
	setPackedHead(g.packed, g.size)
	return g.packed
}

func Unpack(s string) (numbers []int64, ok bool) { return UnpackTo(nil, s) }

// UnpackTo is Unpack into memory that is there, and PackTo is like Pack.
func UnpackTo(to []int64, s string) (numbers []int64, ok bool) {
	u := unpacker{rest: s}
	for n := u.array(); n > 0 && !u.bad; n-- {
		to = append(to, u.integer())
	}
	return to, !u.bad && u.rest == ""
}

func PackTo(b []byte, numbers []int64) []byte {
	b = appendPackedHead(b)
	for _, n := range numbers {
		b = appendPacked(b, n)
	}
	setPackedHead(b, len(numbers))
	return b
}
