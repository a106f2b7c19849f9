package storetest

import (
	"testing"

	"twotier.dev/twotier/syncer"
)

// testContent folds a key whose content its counter knows. The store may write that, or fold, so
// the content has the same events in other buckets. It must not write it if anybody has changed the
// partition since, or if it has the round already.
func testContent(t *testing.T, s syncer.Store) {
	l, seq := smallLadder(t, 0), map[string]uint64{}
	round := func(writer string, k syncer.KeyRound) *syncer.Round {
		seq[writer]++
		return &syncer.Round{Partition: 17, Writer: writer, Now: start + 20_000, Seq: seq[writer],
			Acked: seq[writer] - 1, Keys: []syncer.KeyRound{k}}
	}
	send := func(r, after *syncer.Round) {
		t.Helper()
		if after != nil {
			r.Epoch, r.Version, r.Quieted, r.LastChange = after.Epoch, after.Version, after.Quieted,
				after.LastChange
		}
		if exchange(t, s, r); r.Lost || r.Keys[0].Err != nil {
			t.Fatalf("lost %v, %v", r.Lost, r.Keys[0].Err)
		}
	}
	for name, others := range map[string][]syncer.Round{
		"nobody": nil, "others": {{}}, "others quietly": {{Quiet: true}},
	} {
		first := round("w", key(name, moment(0, 3), bucket(0, 1, 2), moment(19_000, 4)))
		send(first, nil)
		want := int64(9 + 5)
		for _, o := range others {
			r := round("v", key(name, moment(19_500, 7)))
			r.Quiet = o.Quiet
			send(r, nil)
			want += 7
		}
		k := key(name, bucket(0, 19, 5))
		k.Ladder, k.Fold = l, true
		k.Content = []syncer.Bucket{bucket(2, 0, 5), bucket(0, 19, 5), moment(19_000, 4)}
		r := round("w", k)
		for range 2 {
			send(r, first)
			sum := int64(0)
			have := load(t, s, 17, nil, []byte(name))
			checkStored(t, &r.Keys[0], have[at(0, 19)])
			for _, n := range have {
				sum += n
			}
			if sum != want || have[at(2, 0)] != 5 || have[moment(0, 0).Stretch] != 0 {
				t.Errorf("%s: %v, want %d events", name, have, want)
			}
			first = r
		}
	}
}
