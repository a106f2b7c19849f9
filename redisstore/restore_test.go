package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// restorer sends the counts of counters to a store that has lost data.
type restorer struct {
	t              *testing.T
	s              *redisstore.Store
	epoch, version uint64
	seq            int
}

// restore restores one key from the counts of another counter, twice. It returns the reply.
func (r *restorer) restore(k syncer.KeyRound) *syncer.KeyRound {
	r.t.Helper()
	r.seq++
	round := &syncer.Round{Writer: fmt.Sprint("restorer-", r.seq), Seq: 1, Epoch: r.epoch,
		Version: r.version, Republish: true, Now: t0, Keys: []syncer.KeyRound{k}}
	for range 2 {
		send(r.t, r.s, round)
		if round.Err != nil || round.Lost || round.Keys[0].Err != nil {
			r.t.Fatal(round.Err, round.Lost, round.Keys[0].Err)
		}
		r.epoch, r.version = round.Epoch, round.Version
	}
	return &round.Keys[0]
}

func (r *restorer) apply(k syncer.KeyRound) {
	r.t.Helper()
	r.seq++
	round := &syncer.Round{Writer: fmt.Sprint("w-", r.seq), Seq: 1, Now: t0, Epoch: r.epoch,
		Version: r.version, Keys: []syncer.KeyRound{k}}
	if send(r.t, r.s, round); round.Err != nil || round.Keys[0].Err != nil {
		r.t.Fatal(round.Err, round.Keys[0].Err)
	}
	r.version = round.Version
}

func keyOfCells(name string, c content) syncer.KeyRound {
	return syncer.KeyRound{Key: []byte(name), TTL: 3_600_000, Adds: c.buckets()}
}

// TestRedisRestoresWhatIsMissing restores random cells of several ladders, over and over: each time
// the store adds exactly the cells of leaparray.MissingCells. In some runs the epoch begins with
// data that survived a loss, and in between others count.
func TestRedisRestoresWhatIsMissing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dice, all := rand.New(rand.NewPCG(storetest.Seed(t), 13)), foldingLadders(t)
	for _, expiry := range redistest.Expiries(t, srv) {
		for run := range 60 {
			flushAll(t, srv)
			s := open(t, redisstore.Options{URL: srv.URL(), Expiry: redisstore.Expiry(expiry)})
			r := &restorer{t: t, s: s}
			want, restored := content{}, content{}
			if run%2 == 1 {
				want = drawContent(dice, all, t0)
				r.apply(keyOfCells("k", want))
				srv.Do("DEL", prefix.StateKey(0))
				r.version = 0
				restored = maps.Clone(want)
			}
			for range 5 {
				known := drawContent(dice, all, t0)
				var missing []leaparray.Cell
				if len(known) > 0 {
					missing = leaparray.MissingCells(known.cells(), restored.cells())
				}
				reply := r.restore(keyOfCells("k", known))
				want.add(missing)
				restored.add(missing)
				maps.DeleteFunc(restored, isEmpty) // an empty cell counts as none
				if got := cellsOf(t, s, expiry, "k"); !got.same(want) {
					t.Fatalf("%s, run %d: %v\nof which %v is missing makes\n%v, want\n%v", expiry,
						run, known, missing, got, want)
				}
				if got := contentOf(reply.Loaded); !got.same(want) {
					t.Errorf("%s, run %d: reported %v, want %v", expiry, run, got, want)
				}
				more := drawContent(dice, all, t0)
				r.apply(keyOfCells("k", more))
				want.add(more.cells())
			}
		}
	}
}

// TestRestoreWithFoldsBetween: counters know the same events, but have folded at different times
// and by different ladders. Some know fewer events, and the last one all. They restore them one
// after the other; in between others count, and fold the key. In the end the store has every
// event once, and the bounds of no window exclude the true count.
func TestRestoreWithFoldsBetween(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 14))
	for _, expiry := range redistest.Expiries(t, srv) {
		for range 60 {
			flushAll(t, srv)
			r := &restorer{t: t, s: open(t, redisstore.Options{URL: srv.URL(),
				Expiry: redisstore.Expiry(expiry)})}
			events := content{}
			for range 1 + dice.IntN(150) {
				events[leaparray.Moment(t0-dice.Int64N(900_000))]++
			}
			since := r.restoreInTurns(dice, events)
			events[leaparray.Moment(second.Start)] += since
			got := cellsOf(t, r.s, expiry, "k")
			if got.sum() != events.sum() {
				t.Fatalf("%d events in %v, want %d", got.sum(), got, events.sum())
			}
			for range 100 {
				to := t0 + 1000 - dice.Int64N(1_000_000)
				got.bound(t, events, to-dice.Int64N(900_000), to)
			}
		}
	}
}

// restoreInTurns has several counters restore the events, and returns the number of events counted
// in between.
func (r *restorer) restoreInTurns(dice *rand.Rand, events content) (since int64) {
	all := foldingLadders(r.t)
	for i := range 5 {
		known := maps.Clone(events)
		maps.DeleteFunc(known, func(leaparray.Stretch, int64) bool {
			return i < 4 && dice.IntN(4) == 0
		})
		l := all[dice.IntN(len(all))]
		for age := int64(600_000); age >= 0; age -= 200_000 {
			known.fold(l, t0-age-dice.Int64N(200_000), 0)
		}
		r.restore(keyOfCells("k", known))
		if dice.IntN(2) == 0 {
			r.count(all[dice.IntN(len(all))])
			since++
		}
	}
	return since
}

// count counts an event in a key, which folds.
func (r *restorer) count(l *leaparray.Ladder) {
	r.t.Helper()
	read := &syncer.Round{Writer: "w", Keys: []syncer.KeyRound{{Key: []byte("k"), Load: true}}}
	send(r.t, r.s, read)
	all := contentOf(read.Keys[0].Loaded)
	all[second]++
	all.fold(l, t0, 0)
	k := syncer.KeyRound{Key: []byte("k"), TTL: 3_600_000, Rewrite: true,
		ContentLog: syncer.WholeLog, Adds: []syncer.Bucket{counts(second, 1)},
		Content: all.buckets()}
	slices.SortFunc(k.Content, syncer.Bucket.Compare)
	r.apply(k)
}

// bound checks the bounds of a window, both ends included.
func (c content) bound(t *testing.T, events content, from, to int64) {
	t.Helper()
	lo, hi, n := int64(0), int64(0), int64(0)
	for s, of := range events {
		if s.Start >= from && s.Start <= to {
			n += of
		}
	}
	for s, of := range c {
		if s.Start <= to && s.End() > from {
			hi += of
		}
		if s.Start >= from && s.End()-1 <= to {
			lo += of
		}
	}
	if n < lo || n > hi {
		t.Fatalf("from %d to %d: %d events, but %d to %d in %v", from, to, n, lo, hi, c)
	}
}

// TestRestoreLeavesWhatWasReset restores a key that was reset: the store leaves it alone and
// reports its counts, also when the part is sent again.
func TestRestoreLeavesWhatWasReset(t *testing.T) {
	t.Parallel()
	r := &restorer{t: t, s: open(t, redisstore.Options{URL: redistest.Start(t).URL()})}
	r.apply(syncer.KeyRound{Key: []byte("k"), TTL: 3_600_000, Reset: true,
		Adds: []syncer.Bucket{counts(second, 2)}})
	read := &syncer.Round{Writer: "reader"}
	send(t, r.s, read)
	r.epoch, r.version = read.Epoch, read.Version
	k := r.restore(keyOfCells("k", content{second: 9, leaparray.Moment(t0 - 5): 1}))
	if got := contentOf(k.Loaded); !got.same(content{second: 2}) {
		t.Errorf("reported %v", got)
	}
	if got := cellsOf(t, r.s, "key", "k"); !got.same(content{second: 2}) {
		t.Errorf("%v", got)
	}
}
