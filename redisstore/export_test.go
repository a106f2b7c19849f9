package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// Client returns the connection, to look at Redis in tests.
func (s *Store) Client() redis.UniversalClient { return s.conn.Client }

// Key returns the name of the Hash that holds a key's counts, with the default prefix.
func Key(partition int, ns, key []byte) string {
	return layout.DefaultPrefix.Key(partition, ns, key)
}

// Name is Key with the prefix of the store.
func (s *Store) Name(partition int, ns, key []byte) string {
	return s.prefix.Key(partition, ns, key)
}

// Address is Key for a key of the default namespace.
func (s *Store) Address(key string) string {
	return s.Name(s.opt.Placement.Of(nil, []byte(key)), nil, []byte(key))
}

// Partition returns the partition of a key of the default namespace.
func (s *Store) Partition(key string) int { return s.opt.Placement.Of(nil, []byte(key)) }

// VersionField is the field of a Hash that counts nothing.
const VersionField = layout.VersionField

var _ syncer.Store = (*Store)(nil)

// Claim returns the version of a key that a worker has claimed until a time in unix milliseconds.
func (d *Direct) Claim(until int64) string {
	return fmt.Sprint(claimMark, until, claimMark, d.workers[0].claimant)
}

// Unlike returns the keys of which Redis has something else than the workers hold, under the same
// version. They must be idle.
func (d *Direct) Unlike(ctx context.Context) (names []string) {
	for _, w := range d.workers {
		for name, held := range w.held.young {
			flat, err := d.opt.Store.conn.Client.Do(ctx, d.opt.Store.readVerb(), name).Slice()
			if held.generation == 0 || held.err != nil {
				continue
			}
			k := heldKey{ladder: held.ladder, values: heldValues{most: held.values.most}}
			for i := range flat {
				w.flat = append(w.flat[:i], scripts.TextAt(flat, i))
			}
			k.load(w.flat[:len(flat)], d.opt.Now())
			same := k.version == held.version // otherwise another worker has changed it since
			if err != nil || same && k.content() != held.content() {
				names = append(names, fmt.Sprintf("%s: %s, not %s", name, k.content(),
					held.content()))
			}
		}
	}
	return names
}

// content returns the fields, the cells and the values of a key.
func (k *heldKey) content() string {
	k.widest = anyWidth
	slices.SortFunc(k.fields, func(a, b heldField) int { return cmp.Compare(a.name, b.name) })
	return fmt.Sprintf("%q, %v, %v", k.fields, k.appendCells(nil), k.values.list)
}

// Fields returns the fields and values of a Hash with these cells.
func Fields(cells ...syncer.Bucket) (flat []any) {
	cells = slices.SortedFunc(slices.Values(cells), syncer.Bucket.Compare)
	var p layout.Pages
	p.Each(cells, nil, func(name, value []byte) {
		flat = append(flat, string(name), string(value))
	})
	return flat
}
