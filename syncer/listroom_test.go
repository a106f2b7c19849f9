package syncer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// TestTheLongestListGivesWay: when keys need the memory that other keys' hashes take, and no
// partition has more than its share, the partition with the most hashes gives them up, and no other
// one. Its keys are read again then, and its list only after a while.
func TestTheLongestListGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, long, short = 4, 1500, 50
		place := twotier.Placement{Partitions: partitions}
		p := &duo{t: t, store: newClerk()}
		for i := range p.c {
			p.c[i] = open(t, syncer.Options{Store: p.store, Placement: place, NotOwner: i > 0,
				FlushInterval: 10 * time.Millisecond, VerifyInterval: verifyEvery,
				MaxMemory: []int64{192 << 10, 0}[i]})
		}
		name := func(i int, what string) string {
			return keyIn(place, i%partitions, fmt.Sprint(what, i/partitions, "-"))
		}
		old := func(i int) string { return keyIn(place, 0, fmt.Sprint("old-", i, "-")) }
		for i := range long {
			addIn(t, p.c[1], old(i), 2, 0)
		}
		for i := range partitions * short {
			addIn(t, p.c[1], name(i, "some-"), 2, 0)
		}
		flush(t, p.c[1])
		for i := range partitions * 3 {
			p.take(0, name(i, "first-"))
			time.Sleep(verifyEvery / 2)
		}
		before := p.c[0].Listed()
		for i, n := range before {
			if want := map[bool]int{true: long + short, false: short}[i == 0]; n < want {
				t.Fatalf("%d hashes of partition %d, want %d", n, i, want)
			}
		}
		for i := 0; p.c[0].Listed()[0] > 0 && i < 10_000; i++ {
			add(t, p.c[0], name(i, "new-"), 1, 0)
			time.Sleep(5 * time.Millisecond) // so that the sweep runs, and new keys are flushed
		}
		after := p.c[0].Listed()
		for i, n := range before {
			if i == 0 && after[i] > 0 || i > 0 && after[i] < n {
				t.Errorf("partition %d had %d hashes and has %d", i, n, after[i])
			}
		}
		if n := p.c[0].ReserveUsed(); n > 0 {
			t.Errorf("%d bytes of the reserve are still in use", n)
		}
		p.store.forget()
		for i := range 20 {
			if p.take(0, old(i)) {
				t.Errorf("%s is taken for new though it is full", old(i))
			}
			time.Sleep(verifyEvery)
		}
		if reads, begun, _ := p.store.counted(); len(reads) < 20 || begun > 0 {
			t.Errorf("%d keys were read, and %d lists", len(reads), begun)
		}
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			p.take(0, old(20+i))
			time.Sleep(verifyEvery)
		}
		if _, begun, _ := p.store.counted(); begun == 0 {
			t.Error("the list is not read again")
		}
	})
}
