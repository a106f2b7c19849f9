package redisstore

import (
	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/connect"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/msgpack"
	"twotier.dev/twotier/syncer"
)

// Client returns the connection, to look at Redis in tests.
func (s *Store) Client() redis.UniversalClient { return s.conn.Client }

// Commands returns all commands in use, as ACL rules name them.
func Commands(e Expiry) []string { return connect.Commands(string(e)) }

// Key returns the name of the Hash that holds a key's counts, with the default prefix.
func Key(partition int, ns, key []byte) string {
	return layout.DefaultPrefix.Key(partition, ns, key)
}

// Name is Key with the prefix of the store.
func (s *Store) Name(partition int, ns, key []byte) string {
	return s.prefix.Key(partition, ns, key)
}

// Field returns the name of a cell in its key's Hash.
func Field(s leaparray.Stretch) string { return layout.Field(s) }

// Address is Key for a key of the default namespace.
func (s *Store) Address(key string) string {
	return s.Name(s.opt.Placement.Of(nil, []byte(key)), nil, []byte(key))
}

// Partition returns the partition of a key of the default namespace.
func (s *Store) Partition(key string) int { return s.opt.Placement.Of(nil, []byte(key)) }

// SetMaxSteps bounds the steps of a script. It must be called before the first operation.
func (d *Direct) SetMaxSteps(n int) { d.steps = n }

// MaxSteps is the default bound.
const MaxSteps = maxSteps

// Steps returns how many steps a script took, given its reply.
func Steps(reply string) int64 {
	r := msgpack.Reader{Rest: reply}
	r.Array()
	r.Integer()
	return r.Integer()
}

// MaxWaiting is how many operations may wait for a worker.
const MaxWaiting = maxWaiting

var _ syncer.Store = (*Store)(nil)
