package ring_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
)

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
