package storetest

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"twotier.dev/twotier/syncer"
)

// testAlike counts the same in many keys at once, with each combination of flags by which a round
// marks them as new or not. Some of the keys exist.
func testAlike(t *testing.T, s syncer.Store) {
	adds := []syncer.Bucket{bucket(0, 0, 2), bucket(1, 0, 2)}
	for i, flags := range []syncer.KeyRound{{New: true}, {Load: true}, {New: true, Load: true}, {},
		{Reset: true, Load: true}} {
		name := func(j int) string { return fmt.Sprint("alike-", i, "-", j) }
		seq := uint64(3*i + 1)
		apply(t, s, "w", seq, key(name(0), bucket(0, 0, 5)))
		apply(t, s, "w", seq+1, key(name(3), bucket(0, 1, 7), bucket(1, 0, 7)))
		r := &syncer.Round{Partition: 17, Writer: "w", Seq: seq + 2, Acked: seq + 1}
		for j := range 6 {
			k := key(name(j), adds...)
			k.New, k.Load, k.Reset = flags.New, flags.Load, flags.Reset
			k.TTL, k.Renew = (2 * time.Hour).Milliseconds(), true
			r.Keys = append(r.Keys, k)
		}
		for range 2 { // the second time it only reads
			c := copyOf(r)
			exchange(t, s, c)
			for j := range c.Keys {
				want := alikeContent(j, flags.Reset)
				checkHeld(t, s, c.Keys[j], want[at(0, 0)], want[at(1, 0)])
				if got := contentOf(c.Keys[j].Loaded); flags.Load && !maps.Equal(got, want) {
					t.Errorf("%s: loaded %v, want %v", name(j), got, want)
				}
				if got := load(t, s, 17, nil, []byte(name(j))); !maps.Equal(got, want) {
					t.Errorf("%s: holds %v, want %v", name(j), got, want)
				}
				checkTTL(t, s, name(j), 2*time.Hour)
			}
		}
	}
}

// alikeContent is the content of the j-th of the equally counted keys.
func alikeContent(j int, reset bool) content {
	want := content{at(0, 0): 2, at(1, 0): 2}
	switch {
	case j == 0 && !reset:
		want[at(0, 0)] += 5
	case j == 3 && !reset:
		want[at(0, 1)] += 7
		want[at(1, 0)] += 7
	}
	return want
}

// checkTTL checks a key's remaining time to live, if the store reveals it.
func checkTTL(t *testing.T, s syncer.Store, name string, want time.Duration) {
	t.Helper()
	ttl, ok := s.(TTLer)
	if !ok {
		return
	}
	if got := ttl.TTL(t, 17, nil, []byte(name)); got > want || got < want-6*slack {
		t.Errorf("%s lives for %v more, want %v", name, got, want)
	}
}
