package simtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
)

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
