package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/leaparray"
)

// calm returns a world of three nodes without faults.
func calm(t *testing.T) *world { return calmWith(t, func(*plan) {}) }

// inCalm runs a story in a calm world, in a bubble.
func inCalm(t *testing.T, story func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := calm(t)
		defer w.shutDown()
		story(t, w)
	})
}

// calmWith is a calm world with another plan.
func calmWith(t *testing.T, change func(p *plan)) *world {
	w := &world{
		t: t, seed: 1, ladders: []*leaparray.Ladder{usual()}, rnd: rand.New(rand.NewPCG(1, 1)),
		redis: embedded.New(embedded.Options{}),
		plan: plan{
			kind: graceful, nodes: 3, partitions: 31, lanes: 2, interval: 100 * time.Millisecond,
			weather: simnet.Weather{Delay: time.Millisecond},
		},
		ledger: ledger{keys: map[string]*account{}}, procs: map[int]*proc{}, inUse: map[*proc]int{},
		listed: map[string]roster.Entry{},
	}
	change(&w.plan)
	w.net = simnet.New(w.seed, w.plan.weather)
	for i := 1; i <= w.plan.nodes; i++ {
		if _, err := w.start(i); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// TestBatchKeepsTheOrderOfAKey sends operations with one owner and with several in one batch, on
// shared keys. The first operation on a key is admitted, whatever else runs at the same time.
func TestBatchKeepsTheOrderOfAKey(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		take := func(round int, keys ...string) (op twotier.Op) {
			op.Kind = twotier.Acquire
			for _, key := range keys {
				op.Checks = append(op.Checks,
					twotier.Check{Key: fmt.Appendf(nil, "%s %d", key, round), N: 1,
						Limits: []twotier.Limit{{Window: dayMS, Max: 2}}})
			}
			return op
		}
		for round := range 50 {
			ops := []twotier.Op{take(round, "a", "b"), take(round, "a"), take(round, "a"),
				take(round, "b", "c"), take(round, "b", "d"), take(round, "c"),
				take(round, "c", "e")}
			want := []bool{true, true, false, true, false, true, false}
			res := make([]twotier.Result, len(ops))
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			w.alive()[round%3].node.DoAll(ctx, ops, res)
			cancel()
			for i := range ops {
				if res[i].Err != nil || res[i].Allowed != want[i] {
					t.Errorf("round %d, operation %d: allowed %v, %v", round, i, res[i].Allowed,
						res[i].Err)
				}
			}
		}
	})
}

// withOthers returns an acquire of one event of a key with a limit, together with keys whose limits
// are never reached.
func withOthers(limit int64, key string, others ...string) *twotier.Op {
	op := acquiring(1, append(others, key)...)
	for i := range op.Checks {
		op.Checks[i].Limits[0].Max = 1000
	}
	op.Checks[len(others)].Limits[0].Max = limit
	return op
}

// TestALimitHoldsWhoseOwnerLives kills another owner of the acquires. The asked nodes count in its
// place, but the live owner still decides about its key, alone.
func TestALimitHoldsWhoseOwnerLives(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		a, b, c := w.alive()[0], w.alive()[1], w.alive()[2]
		key, ofA, ofB := w.keysOf(c, "c", 1)[0], w.keysOf(a, "a", 1)[0], w.keysOf(b, "b", 1)[0]
		const limit = 10
		for _, op := range []*twotier.Op{withOthers(limit, key, ofB), withOthers(limit, key, ofA)} {
			if res, err := a.do(op, time.Second); err != nil || !res.Allowed {
				t.Fatal(res, err)
			}
		}
		time.Sleep(10 * time.Second)
		b.kill()
		allowed := 2
		for i := range 4 * limit {
			op := withOthers(limit, key, ofB)
			if i%4 > 1 {
				op = withOthers(limit, key, ofB, ofA)
			}
			res, err := []*proc{a, c}[i%2].do(op, 2*time.Second)
			must.Succeed(t, err)
			if res.Allowed {
				allowed++
				if res.Source != twotier.SourceFallback {
					t.Errorf("an answer in place of a node that is gone has the source %q",
						res.Source)
				}
			}
		}
		if allowed != limit {
			t.Errorf("%d were allowed, the limit is %d and its owner was there", allowed, limit)
		}
	})
}

// TestALimitHoldsWhoseOwnerIsReached cuts the network in one direction, while all nodes live.
// Another owner coordinates the acquires that the asked node can't, and no limit is exceeded, not
// even one of the owner that the asked node can't reach.
func TestALimitHoldsWhoseOwnerIsReached(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		a, b, c := w.alive()[0], w.alive()[1], w.alive()[2]
		ofB, ofC := w.keysOf(b, "b", 8), w.keysOf(c, "c", 8)
		const limit = 10
		w.net.Cut(a.ip, b.ip, simnet.All)
		time.Sleep(2 * time.Second)
		for i := range ofB {
			op := withOthers(limit, ofC[i], ofB[i])
			if i%2 == 1 {
				op = withOthers(limit, ofB[i], ofC[i])
			}
			if i%4 < 2 {
				slices.Reverse(op.Checks) // the node that is asked first is another one
			}
			allowed := 0
			for n := range 2 * limit {
				res, err := []*proc{a, c}[n%2].do(op, 2*time.Second)
				if err == nil && res.Allowed {
					allowed++
				}
			}
			if allowed != limit {
				t.Errorf("%d of a limit of %d were allowed", allowed, limit)
			}
			time.Sleep(5 * time.Second)
		}
		w.net.Heal()
		time.Sleep(30 * time.Second)
	})
}

// TestGroupsAreWholeAfterAStandstill suspends one of three nodes during many acquires over keys of
// all of them, for longer than it takes to declare it dead and to give up asking. The others go on.
// In the end all keys of an acquire are counted or none is, whichever node stood still.
func TestGroupsAreWholeAfterAStandstill(t *testing.T) {
	for name, who := range map[string]int{"the coordinator": 0, "a holder": 1, "the decider": 2} {
		t.Run(name, func(t *testing.T) {
			inCalm(t, func(t *testing.T, w *world) {
				const groups = 40
				list := w.alive()
				var keys [3][]string
				for i, p := range list[:3] {
					keys[i] = w.keysOf(p, "group", groups+1)
				}
				p := list[who]
				var running sync.WaitGroup
				for i := range groups {
					running.Go(func() {
						op := acquiring(1, keys[0][i], keys[1][i], keys[2][i])
						_, _ = list[0].do(op, 2*time.Second)
					})
					if time.Sleep(300 * time.Microsecond); i == groups/2 {
						p.asleep.Store(true)
						w.net.Freeze(p.ip)
					}
				}
				others := slices.Delete([]int{0, 1, 2}, who, who+1)
				for range 30 {
					op := acquiring(100, keys[others[0]][groups], keys[others[1]][groups])
					_, _ = list[others[0]].do(op, 2*time.Second)
					time.Sleep(time.Second)
				}
				w.net.Thaw(p.ip)
				p.asleep.Store(false)
				running.Wait()
				time.Sleep(time.Minute)
				seen := map[string]int{}
				for i := range groups {
					seen[fmt.Sprint(w.stored(keys[0][i]), w.stored(keys[1][i]),
						w.stored(keys[2][i]))]++
				}
				t.Log("groups by the counts of their keys:", seen)
				if seen["0 0 0"]+seen["1 1 1"] != groups {
					t.Errorf("counted in part: %v", seen)
				}
			})
		})
	}
}

// readClock reads the clock of the process's host. While the process is suspended, the reading has
// to wait: no code that depends on the time goes on.
func (p *proc) readClock() time.Time {
	_ = p.w.net.Awake(context.Background(), p.ip)
	return time.Now()
}

// TestNodeThatStoodStillKnowsAllAdmissions suspends the owner of a key for 1.5 to 60 s, while it
// has requests in flight. Another node admits events in its place until the last moment, and then
// as the new owner. The requests that wait at the suspended node when it goes on have a limit that
// the admissions so far have used up, apart from the ones that the suspended node had yet to flush.
// None of these requests is admitted.
func TestNodeThatStoodStillKnowsAllAdmissions(t *testing.T) {
	for _, length := range []time.Duration{1500, 2000, 3000, 5000, 7000, 9000, 14_000, 60_000} {
		length *= time.Millisecond
		t.Run(length.String(), func(t *testing.T) {
			inCalm(t, func(t *testing.T, w *world) {
				for round := range 3 {
					w.standStill(fmt.Sprint("round", round), length)
					time.Sleep(20 * time.Second)
				}
			})
		})
	}
}

// admissions counts the admitted events of a key.
type admissions struct {
	key string
	n   atomic.Int64
}

// acquire asks a process for one event with a limit, and counts it if it is admitted.
func (a *admissions) acquire(p *proc, most int64, patience time.Duration) (admitted bool,
	err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte(a.key), N: 1,
		Limits: []twotier.Limit{{Window: dayMS, Max: most}}}}}
	var res twotier.Result
	if err = p.node.Do(ctx, &op, &res); err == nil && res.Allowed {
		a.n.Add(1)
	}
	return err == nil && res.Allowed, err
}

// standStill suspends the owner of a key, see TestNodeThatStoodStillKnowsAllAdmissions.
func (w *world) standStill(key string, length time.Duration) {
	w.t.Helper()
	const plenty = 1 << 30
	list := w.alive()
	p, other := list[0], list[1]
	a := &admissions{key: w.keysOf(p, key, 1)[0]}
	var before sync.WaitGroup
	for range 20 {
		before.Go(func() { _, _ = a.acquire(p, plenty, 2*time.Second) })
		time.Sleep(20 * time.Millisecond)
		before.Go(func() { _, _ = a.acquire(other, plenty, 2*time.Second) })
	}
	p.asleep.Store(true)
	w.net.Freeze(p.ip)
	withheld, already := int64(0), a.n.Load()
	p.counter.EachUnflushed(func(_, _ []byte, n int64) { withheld += n })
	for by := time.Now().Add(length); time.Now().Before(by); {
		_, _ = a.acquire(other, plenty, 300*time.Millisecond)
		time.Sleep(5 * time.Millisecond)
	}
	admitted := a.n.Load()
	if admitted == already {
		w.t.Errorf("nobody has decided in place of the node for %v", length)
	}
	var waiting sync.WaitGroup
	for range 20 {
		waiting.Go(func() {
			_ = w.net.Awake(context.Background(), p.ip)
			switch beyond, err := a.acquire(p, admitted-withheld, 4*time.Second); {
			case err != nil:
				w.t.Errorf("a request that waited: %v", err)
			case beyond:
				w.t.Errorf("the node admits an event beyond the %d admitted, %d of them unflushed",
					admitted, withheld)
			}
		})
	}
	time.Sleep(time.Millisecond)
	w.net.Thaw(p.ip)
	p.asleep.Store(false)
	waiting.Wait()
	before.Wait()
	w.t.Logf("%v: %d admitted before, %d until it went on, %d unflushed", length, already,
		admitted, withheld)
	if !w.until(10*time.Second, func() bool {
		ok, _ := a.acquire(p, plenty, time.Second)
		return ok
	}) {
		w.t.Error("the node admits nothing any more")
	}
}
