package distinct_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
)

// pair is two engines that answer the same requests: one caches answers, the other forgets its
// cache before each request.
type pair struct {
	c                *clock
	learned, forgets *distinct.Engine
	random           *rand.Rand
	serial           int
}

func (p *pair) ask(t *testing.T, op distinct.Op) distinct.Result {
	t.Helper()
	var got, want distinct.Result
	p.forgets.Unlearn()
	must.Succeed(t, errors.Join(p.learned.Do(t.Context(), &op, &got, false),
		p.forgets.Do(t.Context(), &op, &want, false)))
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%d values, limits %v at %d: remembered\n%+v, want\n%+v", len(op.Hashes),
			op.Limits, p.c.ms.Load(), got, want)
	}
	return got
}

// hashes returns some new hashes, and some that the key may have.
func (p *pair) hashes(n int) (list []uint64) {
	for range n {
		p.serial++
		name := p.serial
		if p.random.IntN(3) == 0 {
			name = p.random.IntN(p.serial)
		}
		list = append(list, p.learned.Hash(fmt.Append(nil, name)))
	}
	return list
}

// TestRememberedAnswers asks again and again about a key that gains values slowly, for other values
// and with limits close to its counts: cached answers always match an engine without a cache. Keys
// have a few values, as many as are counted exactly, about as many as a bucket or a window counts
// exactly, and many more.
func TestRememberedAnswers(t *testing.T) {
	for seed, most := range []int{4, 60, 700} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			p := &pair{c: newClock(), random: rand.New(rand.NewPCG(uint64(seed), 7))}
			p.learned = engine(t, p.c, nil, nil, nil, nil)
			p.forgets = engine(t, p.c, nil, nil, nil, nil)
			key, random := []byte("k"), p.random
			refused, learned := 0, 0
			for range 30 {
				p.c.ms.Add(random.Int64N(random.Int64N(1_200_000) + 1))
				if random.IntN(2) == 0 {
					p.ask(t, distinct.Op{Key: key, Hashes: p.hashes(1 + random.IntN(most))})
				}
				windows := []int64{60_000, 3_600_000, 86_400_000}[random.IntN(3):]
				counts := p.ask(t, distinct.Op{Key: key, Windows: windows}).Counts
				op := distinct.Op{Key: key}
				for i, c := range counts {
					near := c.Values + random.Int64N(9) - 3 - c.Values/50*random.Int64N(3)
					op.Limits = append(op.Limits, twotier.Limit{Window: windows[i],
						Max: max(0, near)})
				}
				for range 3 {
					op.Hashes = p.hashes(1 + random.IntN(1+random.IntN(8)))
					if res := p.ask(t, op); !res.Allowed {
						refused++
					}
					p.c.ms.Add(random.Int64N(100))
				}
				if answers, _, _ := p.learned.Learned(); answers > 0 {
					learned++
				}
				weighed(t, p.learned)
			}
			if refused < 10 || learned < 10 {
				t.Errorf("only %d refusals, and %d times was something remembered", refused,
					learned)
			}
		})
	}
}

// weighed checks that an engine's memory includes the answers, and that they take at most half of
// it.
func weighed(t *testing.T, e *distinct.Engine) {
	t.Helper()
	if answers, all, said := e.Learned(); said != all || answers > all/2 {
		t.Fatalf("%d bytes are said to be used, it is %d, %d of them for answers", said, all,
			answers)
	}
}

// TestAnswersAreForgotten caches answers of a key: they go when nobody asks any more, with a reset,
// and before any key has to leave memory.
func TestAnswersAreForgotten(t *testing.T) {
	t.Parallel()
	op := func(i int) *distinct.Op {
		return &distinct.Op{Key: fmt.Append(nil, "k", i),
			Limits: []twotier.Limit{{Window: 60_000, Max: 2}}}
	}
	refused := func(e *distinct.Engine, keys int) {
		for i := range keys {
			add := &distinct.Op{Key: op(i).Key, Hashes: values(e, 1, 2)}
			do(t, e, add)
			for range 3 {
				again := op(i)
				again.Hashes = values(e, 3)
				if do(t, e, again).Allowed {
					t.Fatal("allowed")
				}
			}
			weighed(t, e)
		}
	}
	t.Run("unused", func(t *testing.T) {
		e := engine(t, newClock(), newMemory(), nil, nil, nil)
		refused(e, 1)
		if answers, _, _ := e.Learned(); answers == 0 {
			t.Error("nothing was remembered")
		}
		eventually(t, "they are forgotten", func() bool {
			answers, all, _ := e.Learned()
			return answers == 0 && all > 0
		})
	})
	t.Run("reset", func(t *testing.T) {
		e := engine(t, newClock(), newMemory(), nil, nil, nil)
		refused(e, 1)
		if _, err := e.Forget(t.Context(), nil, op(0).Key); err != nil {
			t.Fatal(err)
		}
		again := op(0)
		if again.Hashes = values(e, 3); !do(t, e, again).Allowed {
			t.Error("still refused")
		}
	})
	t.Run("no room", func(t *testing.T) {
		const keys = 20
		e := engine(t, newClock(), nil, nil, nil, nil)
		refused(e, keys)
		answers, all, _ := e.Learned()
		small := engine(t, newClock(), nil, nil, nil, func(o *distinct.Options) {
			o.MaxMemory = all - answers/2
		})
		refused(small, keys)
		if s := small.Stats(); s.Keys != keys {
			t.Errorf("%d keys of %d are left", s.Keys, keys)
		}
	})
}

// TestRememberedBesideEstimates fills windows with as many values as are counted exactly, and adds
// older buckets with which the count becomes an estimate, and a lower one. One more value is too
// many for the newest buckets alone, which the cached union of all buckets does not show.
func TestRememberedBesideEstimates(t *testing.T) {
	t.Parallel()
	const exact, minute = 4050, 60_000
	random := rand.New(rand.NewPCG(16, 17))
	p := &pair{c: newClock(), random: random}
	p.learned = engine(t, p.c, nil, nil, nil, nil)
	p.forgets = engine(t, p.c, nil, nil, nil, nil)
	for i := range 12 {
		op := distinct.Op{Key: fmt.Append(nil, "k", i)}
		for _, n := range []int{500, 60, 450, 450, 450, 450, 450, 450, 450, 450, 450} {
			op.Hashes = nil
			for range n {
				op.Hashes = append(op.Hashes, random.Uint64())
			}
			p.ask(t, op)
			p.c.ms.Add(minute)
		}
		known, other := op.Hashes[:1], []uint64{random.Uint64()}
		op.Limits = []twotier.Limit{{Window: 60 * minute, Max: exact}}
		for _, hashes := range [][]uint64{known, known, known, other} {
			op.Hashes = hashes
			if p.ask(t, op).Allowed {
				t.Error("allowed")
			}
		}
	}
}
