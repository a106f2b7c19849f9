package simtest

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRememberedRefusalsSaveForwards counts the operations that reach the owner while another node
// is asked for a key over its limit 200 times a second. The same acquire is forwarded once a
// second, as package refusals remembers the answer. Acquires that alternate between two amounts,
// which it does not remember, are all forwarded, unless the key is hot: then the borrower refuses
// by itself.
func TestRememberedRefusalsSaveForwards(t *testing.T) {
	const times = 4000
	for _, c := range []struct {
		name        string
		hotRate     float64
		amounts     int64
		least, most int64
	}{
		{"the same", 2000, 1, 20, 30},
		{"two amounts", 2000, 2, times - 10, times},
		{"two amounts of a hot key", 20, 2, 0, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calmWith(t, func(p *plan) { p.hotRate = c.hotRate })
				defer w.shutDown()
				a, b := w.alive()[0], w.alive()[1]
				op := acquiring(5, w.keysOf(b, "over", 1)[0])
				before := b.node.Stats().ServedTotal
				for i := range int64(times) {
					op.Checks[0].N = 1 + i%c.amounts
					if _, err := a.do(op, 2*time.Second); err != nil {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Millisecond)
				}
				served := b.node.Stats().ServedTotal - before
				t.Logf("%d of %d acquires reached the owner", served, times)
				if served < c.least || served > c.most {
					t.Errorf("want %d to %d", c.least, c.most)
				}
			})
		})
	}
}
