package simtest

import (
	"testing"
	"testing/synctest"

	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
)

// TestWhoLeavesWithoutRedisHandsOverItsValues makes the owner of a key leave while it has no Redis.
// The others count the values that it had acknowledged.
func TestWhoLeavesWithoutRedisHandsOverItsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWith(t, func(p *plan) { p.values = true })
		defer w.shutDown()
		leaver := w.alive()[0]
		key := []byte(w.keysOf(leaver, "k", 1)[0])
		leaver.store.SetDown(true)
		var res distinct.Result
		err := leaver.distinct(&distinct.Op{Key: key}, [][]byte{[]byte("a"), []byte("b")}, &res)
		must.Succeed(t, err)
		if err := leaver.leave(); err != nil {
			t.Errorf("it leaves: %v", err)
		}
		w.bury(leaver)
		for _, p := range w.alive() {
			err := p.distinct(&distinct.Op{Key: key, Windows: []int64{dayMS}}, nil, &res)
			if err != nil || res.Counts[0].Count != 2 {
				t.Errorf("%s counts %+v %v, want 2", p.id, res.Counts, err)
			}
		}
	})
}
