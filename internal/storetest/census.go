package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"twotier/syncer"
)

// testCensus has a store tell the keys it holds, whatever their names.
func testCensus(t *testing.T, s syncer.Store) {
	census, ok := s.(syncer.Census)
	if !ok {
		t.Skip("this store can't tell its keys")
	}
	type name struct {
		partition int
		ns, key   string
	}
	place := syncer.Placement{Partitions: syncer.DefaultPartitions}
	want := map[name]bool{}
	seqs := map[int]uint64{}
	for i := range 1500 {
		n := name{ns: []string{"", "login", "a:b"}[i%3], key: fmt.Sprintf("k:%d:\n}:%c", i, 'a'+i%26)}
		n.partition = place.Of([]byte(n.ns), []byte(n.key))
		want[n] = true
		seqs[n.partition]++
		k := syncer.KeyRound{NS: []byte(n.ns), Key: []byte(n.key), TTL: 60_000, Adds: []syncer.Bucket{bucket(0, 1, 1)}}
		exchange(t, s, &syncer.Round{Partition: n.partition, Writer: "w", Seq: seqs[n.partition], Keys: []syncer.KeyRound{k}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	missing := want
	err := census.Keys(ctx, func(partition int, ns, key []byte) { delete(missing, name{partition, string(ns), string(key)}) })
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(missing) > 0 {
		t.Errorf("%d of 1500 keys were not told, such as %v", len(missing), missing)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := census.Keys(gone, func(int, []byte, []byte) {}); err == nil {
		t.Error("no error, though the context was done")
	}
}
