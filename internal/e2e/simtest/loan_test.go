package simtest

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
)

// TestLoansEndWithTheOwnersRedis takes Redis away only from the owner of a hot key, which then
// can't read remote counts. Once the others have used up their loans they ask it about everything,
// and it grants no more loans before it has Redis back.
func TestLoansEndWithTheOwnersRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWith(t, func(p *plan) { p.hotRate = 20 })
		defer w.shutDown()
		a, b := w.alive()[0], w.alive()[1]
		key := w.keysOf(b, "hot", 1)[0]
		sources := func(length time.Duration) map[twotier.Source]int {
			seen := map[twotier.Source]int{}
			for end := time.Now().Add(length); time.Now().
				Before(end); time.Sleep(5 * time.Millisecond) {
				res, err := a.do(acquiring(1<<40, key), 2*time.Second)
				must.Succeed(t, err)
				seen[res.Source]++
			}
			return seen
		}
		if seen := sources(5 * time.Second); seen[twotier.SourceNear] == 0 {
			t.Fatalf("the key has not become hot: %v", seen)
		}
		b.store.SetDown(true)
		sources(6 * time.Second) // the loans run out
		if seen := sources(10 * time.Second); seen[twotier.SourceNear] > 0 {
			t.Errorf("lent by an owner that can't read what is counted: %v", seen)
		}
		b.store.SetDown(false)
		if seen := sources(10 * time.Second); seen[twotier.SourceNear] == 0 {
			t.Errorf("never hot again: %v", seen)
		}
	})
}
