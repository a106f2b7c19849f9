package redisstore

import (
	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/syncer"
)

// Client returns the connection, to look at Redis in tests.
func (s *Store) Client() redis.UniversalClient { return s.client }

// Commands returns all commands in use, as ACL rules name them.
func Commands(e Expiry) []string { return commands(e) }

// ParseBuckets parses the reply of HGETALL.
func ParseBuckets(reply []any) []syncer.Bucket { return parseBuckets(reply, nil) }

// StateKey returns the key of a partition's state.
func StateKey(partition int) string { return stateKey(partition) }

// WriterKey returns the key of a writer's sequence.
func WriterKey(partition int, writer string) string { return writerKey(partition, writer) }

// MetaKey is the key with the description of the layout.
const MetaKey = metaKey

// Address is Key for a key of the default namespace.
func (s *Store) Address(key string) string {
	return Key(s.opt.Placement.Of(nil, []byte(key)), nil, []byte(key))
}

// Partition returns the partition of a key of the default namespace.
func (s *Store) Partition(key string) int { return s.opt.Placement.Of(nil, []byte(key)) }

// SetMaxSteps bounds the steps of a script. It must be called before the first operation.
func (d *Direct) SetMaxSteps(n int) { d.steps = n }

// MaxSteps is the default bound.
const MaxSteps = maxSteps

// Steps returns how many steps a script took, given its reply.
func Steps(reply string) int64 {
	u := unpacker{rest: reply}
	u.array()
	u.integer()
	return u.integer()
}

// MaxWaiting is how many operations may wait for a lane.
const MaxWaiting = maxWaiting

var _ syncer.Store = (*Store)(nil)

// Pack and Unpack encode and decode the numbers of a script.
func Pack(numbers ...int64) []byte {
	g := directScript{packed: appendPackedHead(nil)}
	g.pack(numbers...)
	setPackedHead(g.packed, g.size)
	return g.packed
}

func Unpack(s string) (numbers []int64, ok bool) { return UnpackTo(nil, s) }

// UnpackTo is Unpack into existing memory, and PackTo is like Pack.
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

// MaxPayloadAdds is how many events a payload may have.
const MaxPayloadAdds = maxPayloadAdds

// PayloadOf returns the payload of a key.
func PayloadOf(events []syncer.Bucket) string { return payloadOf(events) }
