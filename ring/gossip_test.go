package ring_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
)

// deaf is a network in which no packet arrives, so that gossip spreads nothing.
func deaf() simnet.Weather {
	return simnet.Weather{Delay: time.Millisecond, PacketLoss: 1000}
}

// TestChangesNeedNoGossip starts pairs of nodes, and changes the tag of one, all without gossip.
// Each knows all others at once, although the second of a pair joins through a node that knows the
// first only by its direct message; and each learns of the change.
func TestChangesNeedNoGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, deaf())
		const n = 20
		var all []int
		for i := 1; i <= n; i++ {
			_, err := v.start(i, func(o *ring.Options) { o.Join = []string{seed(max(1, i-2))} })
			must.Succeed(t, err)
			if all = append(all, i); i%2 == 0 {
				v.agree(time.Second/10, i, all...)
				time.Sleep(5 * time.Second)
			}
		}
		must.Succeed(t, v.rings[ip(5)].SetTag(context.Background(), "news"))
		time.Sleep(time.Second / 10)
		for _, i := range all {
			tab := v.rings[ip(i)].Table()
			if m := tab.Member(tab.Find("n5-5")); m.Tag != "news" {
				t.Errorf("node %d has not heard the news", i)
			}
		}
	})
}

// TestTellingCostsEachMemberTheSame compares the cost of a change among 10 and among 30 members.
func TestTellingCostsEachMemberTheSame(t *testing.T) {
	race.SkipLong(t)
	var placements ring.Placements
	var each [2]float64
	for i, n := range []int{10, 30} {
		synctest.Test(t, func(t *testing.T) {
			v := newVillage(t, lan())
			for i := 1; i <= n; i++ {
				_, err := v.start(i, func(o *ring.Options) { o.Placements = &placements })
				must.Succeed(t, err)
			}
			time.Sleep(10 * time.Second)
			var bytes atomic.Int64
			v.net.Observe(func(s simnet.Sent) {
				if s.Stream {
					bytes.Add(int64(s.Bytes))
				}
			})
			for range 5 { // state is exchanged now and then without any change
				must.Succeed(t, v.rings[ip(2)].SetTag(context.Background(), "news"))
			}
			each[i] = float64(bytes.Load()) / 5 / float64(n)
		})
	}
	t.Logf("a change takes %.0f bytes of each of 10 members, %.0f of each of 30", each[0], each[1])
	if each[1] > 2*each[0] {
		t.Error("the more members, the more it takes of each")
	}
}

// TestTheLastTableIsOfTheLastMembers has a member leave while a node makes tables for two reasons
// at the same time: because members have changed, and because it enters itself. The placement
// without that member is cached, so its table is made sooner than the one with it, which was begun
// first.
func TestTheLastTableIsOfTheLastMembers(t *testing.T) {
	r, err := ring.New(ring.Options{ID: "n0",
		Agreement: ring.Agreement{Partitions: 257, Seed: 3}})
	must.Succeed(t, err)
	member := func(i int) *memberlist.Node {
		return &memberlist.Node{Name: fmt.Sprint("m", i), Addr: net.IPv4(10, 0, 0, 1), Port: 7946,
			Meta: fmt.Appendf(nil, `{"v":%d,"p":257,"s":3,"i":"m%d","a":1,"b":1}`, ring.Protocol,
				i)}
	}
	const stay, rounds = 10, 25
	for i := range stay {
		r.Came(member(i))
	}
	r.Rebuild()
	for i := range rounds {
		guest := member(stay + i)
		r.Came(guest)
		var both sync.WaitGroup
		both.Go(r.Rebuild)
		both.Go(func() {
			time.Sleep(time.Duration(i) * 20 * time.Microsecond)
			r.Left(guest)
			r.Rebuild()
		})
		both.Wait()
		if table := r.Table(); table.Find(guest.Name) >= 0 {
			t.Fatalf("round %d: %s is a member, and has left", i, guest.Name)
		}
	}
}

// TestAbandonedRingIsNotAnnounced: the others still list a node that has abandoned the cluster when
// they would have heard that it left, and not for long after that.
func TestAbandonedRingIsNotAnnounced(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, v *village) {
		r := v.rings[ip(3)]
		for range 2 {
			must.Succeed(t, r.Abandon())
		}
		must.Succeed(t, r.Close(context.Background()))
		delete(v.rings, ip(3))
		time.Sleep(2 * time.Second)
		if n := v.rings[ip(1)].Table().Len(); n != 3 {
			t.Errorf("%d members two seconds later", n)
		}
		t.Log("known after", v.agree(30*time.Second, 2, 1, 2))
	})
}
