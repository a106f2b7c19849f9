package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// TestProcessesShareKeys has four processes acquire keys that they share, one to three at a time,
// alone and in batches. Many keys are new. Each key has exactly the events that were admitted, and
// as many as its limit if more were asked for. It also has exactly the values that were admitted.
func TestProcessesShareKeys(t *testing.T) {
	t.Parallel()
	const limit, keys, mostValues = 20, 60, 6
	srv := redistest.Start(t)
	seed := storetest.Seed(t)
	var mu sync.Mutex
	var all sync.WaitGroup
	var direct []*redisstore.Direct
	var present atomic.Int64
	present.Store(t0)
	admitted, asked, seen := map[string]int64{}, map[string]int64{}, map[string]map[uint64]bool{}
	for i := range 4 {
		s := open(t, redisstore.Options{URL: srv.URL()})
		// Time passes whenever somebody looks, and the clocks differ.
		now := func() int64 { return present.Add(1) + int64(5*i) }
		direct = append(direct, openDirect(t, redisstore.DirectOptions{Store: s, Now: now,
			Writer: fmt.Sprint("w", i)}))
	}
	for i := range 24 {
		dice := rand.New(rand.NewPCG(seed, uint64(i)))
		d := direct[i%len(direct)]
		all.Go(func() {
			for range 60 {
				ops := make([]twotier.Op, 1+dice.IntN(2)*dice.IntN(20))
				res := make([]twotier.Result, len(ops))
				for j := range ops {
					ops[j].Kind = twotier.Acquire
					first := dice.IntN(keys)
					for k := range 1 + dice.IntN(3) {
						ops[j].Checks = append(ops[j].Checks, check(fmt.Sprint("k",
							(first+7*k)%keys), 1, 60_000, limit))
					}
					ops[j].Checks = append(ops[j].Checks, values(fmt.Sprint("k", first),
						limits(60_000, mostValues), 64+dice.Uint64N(8)))
				}
				if len(ops) > 1 {
					d.DoAll(t.Context(), ops, res)
				} else {
					res[0].Err = d.Do(t.Context(), &ops[0], &res[0])
				}
				mu.Lock()
				for j := range ops {
					if res[j].Err != nil {
						t.Error(res[j].Err)
					}
					last := len(ops[j].Checks) - 1
					for _, c := range ops[j].Checks[:last] {
						asked[string(c.Key)]++
						if res[j].Allowed {
							admitted[string(c.Key)]++
						}
					}
					if c := ops[j].Checks[last]; res[j].Allowed {
						key := string(c.Key[1:])
						if seen[key] == nil {
							seen[key] = map[uint64]bool{}
						}
						seen[key][c.Values[0]] = true
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	full := 0
	for key, n := range admitted {
		if got := count(t, direct[0], key, 60_000); got != n || n > limit {
			t.Errorf("%s: %d counted, %d of %d admitted, limit %d", key, got, n, asked[key], limit)
		}
		if n == limit {
			full++
		}
	}
	for key, of := range seen {
		if got := countValues(t, direct[0], key); got != int64(len(of)) || got > mostValues {
			t.Errorf("%s: %d values, %d admitted, limit %d", key, got, len(of), mostValues)
		}
	}
	if full < keys/2 {
		t.Errorf("%d of %d keys are full: the test shows little", full, keys)
	}
}

// TestDirectFarFromRedisGetsItsTurn has a process close to Redis count a key without pause, so that
// whatever a far one reads of it is out of date when its change arrives. The far one still counts,
// whether its operations are allowed or refused.
func TestDirectFarFromRedisGetsItsTurn(t *testing.T) {
	t.Parallel()
	srv, p, far := proxied(t, 10*time.Second)
	s := open(t, redisstore.Options{URL: srv.URL()})
	near := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load,
		Writer: "near"})
	stop := make(chan struct{})
	var counting sync.WaitGroup
	var counted int64
	counting.Go(func() {
		for op := (twotier.Op{Checks: []twotier.Check{check("k", 1)}}); ; counted++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := near.Do(t.Context(), &op, new(twotier.Result)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	p.Delay(10 * time.Millisecond)
	for i := range 10 {
		limit := int64(1 << 40)
		if i%2 == 1 {
			limit = 0
		}
		if res := acquire(t, far, check("k", 1, 60_000, limit)); res.Allowed != (limit > 0) {
			t.Errorf("try %d: %+v", i, res)
		}
	}
	close(stop)
	counting.Wait()
	hi(t, near, "k", counted+5)
}

// TestDirectSeesWhatOthersChange changes a key that a Direct holds, by a round and by a reset.
func TestDirectSeesWhatOthersChange(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	clk := newClock(t0)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load})
	add(t, d, "k", 3, 0)
	counter := openCounter(t, syncer.Options{Store: s, Now: clk.now.Load})
	add(t, counter, "k", 5, 0)
	flush(t, counter)
	if res := acquire(t, d, check("k", 1, 60_000, 8)); res.Allowed {
		t.Errorf("after a round: %+v", res)
	}
	add(t, d, "k", 1, 0)
	hi(t, d, "k", 9)
	must.Succeed(t, d.Forget(t.Context(), nil, []byte("k")))
	if res := acquire(t, d, check("k", 1, 60_000, 1)); !res.Allowed {
		t.Errorf("after a reset: %+v", res)
	}
}

// TestClaims has one process claim a key: another one does not change it before the claim has run
// out, or was given up with the next decision about the key, even a refusal.
func TestClaims(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	direct := func(writer string) *redisstore.Direct {
		return openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load,
			Writer: writer, Workers: 1, Timeout: 400 * time.Millisecond})
	}
	claimant, other := direct("claimant"), direct("other")
	set := func(until time.Time) {
		must.Succeed(t, srv.Do("HSET", s.Address("k"), redisstore.VersionField,
			claimant.Claim(until.UnixMilli())).Err())
	}
	add(t, claimant, "k", 1, 0)
	set(time.Now().Add(time.Hour))
	op := twotier.Op{Checks: []twotier.Check{check("k", 1)}}
	if err := other.Do(t.Context(), &op, new(twotier.Result)); err == nil {
		t.Error("a key that is claimed was changed")
	}
	if res := acquire(t, claimant, check("k", 1, 60_000, 0)); res.Allowed {
		t.Errorf("%+v", res)
	}
	add(t, other, "k", 1, 0)
	set(time.Now().Add(-time.Second))
	add(t, other, "k", 1, 0)
	hi(t, other, "k", 3)
}

// TestCrossedClaimsRunOut has each of two processes claim one of two keys that both need. Neither
// waits for the other longer than the claims last.
func TestCrossedClaimsRunOut(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	var processes []*redisstore.Direct
	for i, key := range []string{"a", "b"} {
		d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load,
			Writer: fmt.Sprint("w", i), Workers: 1, Timeout: 10 * time.Second})
		plant(t, srv, s.Address(key), at(1, t0, 1))
		processes = append(processes, d)
	}
	for i, key := range []string{"a", "b"} {
		until := time.Now().Add(200 * time.Millisecond).UnixMilli()
		must.Succeed(t, srv.Do("HSET", s.Address(key), redisstore.VersionField,
			processes[i].Claim(until)).Err())
	}
	var all sync.WaitGroup
	for _, d := range processes {
		all.Go(func() {
			op := twotier.Op{Kind: twotier.Acquire,
				Checks: []twotier.Check{check("a", 1, 60_000, 9), check("b", 1, 60_000, 9)}}
			if err := d.Do(t.Context(), &op, new(twotier.Result)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, key := range []string{"a", "b"} {
		hi(t, processes[0], key, 3)
	}
}
