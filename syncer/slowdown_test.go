package syncer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/race"
)

// TestStoreThatSlowsDownAtOnce: the store suddenly takes ten times as long when as many keys wait
// for it as allowed, new or known ones. No count becomes older than the lag. If the store takes
// forty times as long, none becomes older than four times the lag.
func TestStoreThatSlowsDownAtOnce(t *testing.T) {
	race.SkipLong(t)
	known := func(caller, i int) string { return fmt.Sprint("known-", caller, "-", i%2000) }
	for name, tt := range map[string]struct {
		keys  func(caller, i int) string
		times int64
		most  time.Duration
	}{
		"new keys, tenfold":     {newKeys, 10, testLag},
		"known keys, tenfold":   {known, 10, testLag},
		"known keys, fortyfold": {known, 40, 4 * testLag},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newPaced(perKey)
				c := openLagging(t, store)
				f := (&flood{t: t, c: c, patience: 200 * time.Millisecond, name: tt.keys}).start(8)
				before := oldest(c, 10*time.Second)
				store.perKey.Store(tt.times * int64(perKey))
				most := oldest(c, 15*time.Second)
				f.end()
				t.Logf("the oldest count was %v old, then %v", before, most)
				if most > tt.most || most < 2*before {
					t.Errorf("the oldest was %v old, and %v before; want at most %v", most, before,
						tt.most)
				}
				store.perKey.Store(int64(perKey) / 100)
				flush(t, c)
			})
		})
	}
}
