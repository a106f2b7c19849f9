package syncer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestUnflushedThatCancelsOut: an event is on its way to the store, and has been taken back since.
// If the process ended now the store could keep the event, although the counts add up to zero.
func TestUnflushedThatCancelsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := heldStore{embedded.New(embedded.Options{}), make(chan struct{}, 1)}
		c := open(t, syncer.Options{Store: s, FlushInterval: 10 * time.Millisecond})
		s.answer <- struct{}{}
		add(t, c, "k", 1, 0)
		time.Sleep(time.Second)
		count(t, c, "k", 3_600_000) // taking back needs a known key
		add(t, c, "k", 1, 0)
		time.Sleep(time.Second)
		add(t, c, "k", -1, 0)
		reported := false
		c.EachUnflushed(func(_, k []byte, n int64) {
			reported = reported || string(k) == "k" && n == 0
		})
		if !reported {
			t.Error("what is in flight is not reported")
		}
		close(s.answer)
		time.Sleep(time.Second)
		c.EachUnflushed(func(_, k []byte, n int64) { t.Errorf("%s is left, with %d", k, n) })
	})
}
