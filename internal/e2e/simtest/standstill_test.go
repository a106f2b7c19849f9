package simtest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
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
				running.Wait()
				others := slices.Delete([]int{0, 1, 2}, who, who+1)
				for range 30 {
					op := acquiring(100, keys[others[0]][groups], keys[others[1]][groups])
					_, _ = list[others[0]].do(op, 2*time.Second)
					time.Sleep(time.Second)
				}
				w.net.Thaw(p.ip)
				p.asleep.Store(false)
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
