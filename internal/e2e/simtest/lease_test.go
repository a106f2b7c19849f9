package simtest

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/syncer"
)

// TestLeasesEndWithTheOwnersRedis takes Redis away only from the owner of a hot key. The others
// can't see what the owner admits meanwhile. Once their leases have run out they ask the owner, and
// they get no new leases before it has Redis back.
func TestLeasesEndWithTheOwnersRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmHot(t, 20)
		defer w.shutDown()
		a, b := w.alive()[0], w.alive()[1]
		key := w.keysOf(b, "hot", 1)[0]
		sources := func(length time.Duration) map[syncer.Source]int {
			seen := map[syncer.Source]int{}
			for end := time.Now().Add(length); time.Now().
				Before(end); time.Sleep(5 * time.Millisecond) {
				res, err := a.do(acquiring(1<<40, key), 2*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				seen[res.Source]++
			}
			return seen
		}
		if seen := sources(5 * time.Second); seen[syncer.SourceShared] == 0 {
			t.Fatalf("the key has not become hot: %v", seen)
		}
		b.store.SetDown(true)
		sources(6 * time.Second) // the leases run out
		if seen := sources(10 * time.Second); seen[syncer.SourceShared] > 0 {
			t.Errorf("counted beside an owner that can't be seen: %v", seen)
		}
		b.store.SetDown(false)
		if seen := sources(10 * time.Second); seen[syncer.SourceShared] == 0 {
			t.Errorf("never hot again: %v", seen)
		}
	})
}
