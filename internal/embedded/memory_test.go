package embedded_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/syncer"
)

// TestMemoryIsBoundedWhateverComes floods a small store with names, most of them new: with counts,
// resets of present and missing keys, restorations, and folds, one kind at a time or mixed. The
// accounted memory is right and stays within the bound: a full store refuses rounds.
func TestMemoryIsBoundedWhateverComes(t *testing.T) {
	const memory = 100_000
	first := seed.First()
	t.Logf("seed %d", first)
	rnd := rand.New(rand.NewPCG(first, 0))
	s := newTimed(embedded.Options{MaxMemory: memory})
	seqs, epochs := map[int]uint64{}, map[int]uint64{}
	kind, refused := 0, 0
	for i := range 40_000 {
		if i%2000 == 0 { // in a full store, what does not expire would leave no room
			kind = rnd.IntN(5)
			s.Flush()
			clear(seqs)
			clear(epochs)
		}
		p := rnd.IntN(3)
		seqs[p]++
		key := fmt.Sprint("k", i)
		if rnd.IntN(4) == 0 {
			key = fmt.Sprint("k", rnd.IntN(i+1))
		}
		k := syncer.KeyRound{Key: []byte(key)}
		r := &syncer.Round{Partition: p, Now: rnd.Int64N(20 * 3_600_000), Writer: "w",
			Seq: seqs[p], Epoch: epochs[p]}
		does := kind
		if kind > 2 {
			does = rnd.IntN(3)
		}
		switch does {
		case 0:
			k.TTL, k.Renew = rnd.Int64N(100_000), rnd.IntN(2) == 0
		case 1:
			k.Reset = true
		case 2:
			r.Republish, r.After = true, uint64(rnd.IntN(500)/499)*epochs[p]
		}
		if does != 1 || rnd.IntN(8) == 0 {
			for j := range 1 + rnd.Int64N(4) {
				k.Adds = append(k.Adds, bucket(j, 1))
			}
		}
		r.Keys = []syncer.KeyRound{k}
		s.Exchange(t.Context(), []*syncer.Round{r})
		switch {
		case errors.Is(r.Err, syncer.ErrRefused):
			seqs[p]--
			refused++
		case r.Err != nil || r.Lost:
			t.Fatalf("round %d: %v, lost %v", i, r.Err, r.Lost)
		default:
			epochs[p] = r.Epoch
		}
		s.now = s.now.Add(time.Duration(rnd.IntN(50)) * time.Millisecond)
		n, takes, believed := s.Held()
		if takes != believed || takes > memory+1000 || int64(n)*100 > memory+1000 {
			t.Fatalf("round %d: %d keys and records take %d bytes, believed %d", i, n, takes,
				believed)
		}
	}
	if refused < 1000 || refused > 39_000 {
		t.Errorf("%d of 40000 rounds were refused", refused)
	}
}
