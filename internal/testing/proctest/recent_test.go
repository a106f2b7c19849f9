package proctest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/proctest"
)

func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r proctest.Recent
		began := time.Now()
		if n := r.Since(began); n != 0 {
			t.Errorf("nothing was recorded: %d", n)
		}
		time.Sleep(time.Second)
		r.Note(5)
		time.Sleep(time.Second)
		r.Note(12)
		for after, want := range map[time.Duration]int64{0: 12, time.Second: 7,
			1500 * time.Millisecond: 7, 2 * time.Second: 0, time.Hour: 0} {
			if n := r.Since(began.Add(after)); n != want {
				t.Errorf("since %v: %d, want %d", after, n, want)
			}
		}
	})
}
