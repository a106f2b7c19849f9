package hotkeys_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// shares is a counter that records which keys it shares, and can be made to fail.
type shares struct {
	mu     sync.Mutex
	shared map[string]bool
	fails  error
}

func (s *shares) Share(_, key []byte, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on && s.fails != nil {
		return s.fails
	}
	s.shared[string(key)] = on
	return nil
}

func (s *shares) StaleAfter() time.Duration { return time.Second }

func (s *shares) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shared[key]
}

// side is a node with a tracker.
type side struct {
	*hotkeys.Tracker
	counter *shares
	table   *ring.Table
	paused  atomic.Bool
	cut     atomic.Bool // no other node can be reached
}

// pair is two nodes.
type pair struct {
	owner, other *side
	placed       *ring.Table // the first node owns its keys by this table
}

// link asks the other side of a pair.
type link struct{ from, to *side }

func (l link) Ask(ctx context.Context, _ *ring.Member, request, response any) error {
	if l.from.cut.Load() {
		return rpc.ErrUnreachable
	}
	*response.(*hotkeys.LeaseResponse) = *l.to.Accept(ctx, request.(*hotkeys.LeaseRequest))
	return nil
}

// newPair returns two nodes whose reviews run in a bubble, with keys hot from 1000 operations a
// second on. change can change them before they start.
func newPair(t *testing.T, change func(p *pair)) *pair {
	t.Helper()
	p := &pair{owner: &side{}, other: &side{}}
	members := []ring.Member{{ID: "owner", Name: "owner"}, {ID: "other", Name: "other"}}
	for i, s := range []*side{p.owner, p.other} {
		table, err := ring.NewTable(members, members[i].Name, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.table, s.counter = table, &shares{shared: map[string]bool{}}
		s.Tracker = hotkeys.New(hotkeys.Options{
			Rate: 1000, Placement: syncer.Placement{Partitions: 2},
			Table:   func() *ring.Table { return s.table },
			Self:    func() ring.Member { return members[i] },
			Counter: s.counter, Paused: s.paused.Load,
			Peers: link{s, []*side{p.other, p.owner}[i]},
		})
	}
	p.placed = p.owner.table
	change(p)
	for _, s := range []*side{p.owner, p.other} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	return p
}

// key returns the i-th key that the first node owns.
func (p *pair) key(i int) string {
	for n := 0; ; n++ {
		key := fmt.Sprint("k", n)
		if p.placed.OwnedBySelf(syncer.Placement{Partitions: 2}.Of(nil, []byte(key))) {
			if i--; i < 0 {
				return key
			}
		}
	}
}

func op(key string) syncer.Op {
	return syncer.Op{Kind: syncer.Add, Checks: []syncer.Check{{Key: []byte(key), N: 1}}}
}

// forward makes the owner serve so many operations on a key in a second.
func (p *pair) forward(key string, n int) {
	for range n {
		p.owner.Observe([]rpc.Task{{Op: op(key)}})
	}
	time.Sleep(time.Second)
}

func (p *pair) leased(key string) bool {
	o := op(key)
	return p.other.Leased(&o, &ring.Member{Name: "owner"})
}

// TestHotKeyIsLeasedWhileItIsHot makes a key hot, lets the other node count it under its lease, and
// checks that it returns to its owner once nobody counts it.
func TestHotKeyIsLeasedWhileItIsHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(*pair) {})
		time.Sleep(time.Millisecond) // reviews are at full seconds
		key := p.key(0)
		p.forward(key, 900)
		if p.leased(key) {
			t.Fatal("leased at less than the rate")
		}
		p.forward(key, 1100)
		if granted, _ := p.owner.Sizes(); granted != 1 || !p.leased(key) || !p.counterShares(key) {
			t.Fatalf("%d keys are granted after 1100 operations in a second", granted)
		}
		for range 10 { // none is forwarded any more: counts under the lease keep it
			for range 600 {
				p.leased(key)
			}
			time.Sleep(time.Second)
		}
		if !p.leased(key) {
			t.Fatal("the lease ended while the key was hot")
		}
		time.Sleep(20 * time.Second)
		granted, _ := p.owner.Sizes()
		_, leased := p.other.Sizes()
		if granted+leased != 0 || p.leased(key) || p.owner.counter.has(key) ||
			p.other.counter.has(key) {
			t.Errorf("%d granted, %d leased after 20 s without an operation", granted, leased)
		}
	})
}

func (p *pair) counterShares(key string) bool {
	return p.owner.counter.has(key) && p.other.counter.has(key)
}

// TestLeaseEndsBeforeTheOwnerCountsAlone cuts the owner off and makes it grant no more: for as long
// as the other node may count the key, the owner has to take that into account.
func TestLeaseEndsBeforeTheOwnerCountsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(*pair) {})
		time.Sleep(time.Millisecond)
		key := p.key(0)
		p.forward(key, 1100)
		if !p.leased(key) {
			t.Fatal("not leased")
		}
		p.owner.cut.Store(true)
		p.owner.paused.Store(true)
		began := time.Now()
		for p.leased(key) {
			if !p.owner.counter.has(key) {
				t.Fatal("the owner counts alone while a lease goes on")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if lasted := time.Since(began); lasted > hotkeys.LeaseTime {
			t.Errorf("the lease went on for %v without its owner", lasted)
		}
	})
}

// TestWhatIsNotLeased tries operations that a lease does not cover.
func TestWhatIsNotLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(*pair) {})
		time.Sleep(time.Millisecond)
		key := p.key(0)
		p.forward(key, 1100)
		past, two := op(key), op(key)
		past.TS = 1
		two.Checks = append(two.Checks, two.Checks[0])
		for name, o := range map[string]syncer.Op{
			"in the past": past, "two checks": two, "another key": op(p.key(1)),
		} {
			if p.other.Leased(&o, &ring.Member{Name: "owner"}) {
				t.Errorf("%s: counted under the lease", name)
			}
		}
		o := op(key)
		if p.other.Leased(&o, &ring.Member{Name: "third"}) {
			t.Error("counted under a lease of an owner that is none any more")
		}
	})
}

// TestNoLeaseIsGranted if the counts could not meet, the cluster counts in Redis, or another node
// owns the key.
func TestNoLeaseIsGranted(t *testing.T) {
	for name, change := range map[string]func(p *pair){
		"the store is down":       func(p *pair) { p.owner.counter.fails = errors.New("down") },
		"in Redis":                func(p *pair) { p.owner.paused.Store(true) },
		"another node's":          func(p *pair) { p.owner.table = p.other.table },
		"the holder has no store": func(p *pair) { p.other.counter.fails = errors.New("down") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, change)
				time.Sleep(time.Millisecond)
				key := p.key(0)
				p.forward(key, 1100)
				if p.leased(key) {
					t.Error("leased")
				}
			})
		})
	}
}

// TestGrantsAreBounded makes more keys hot than can be leased at a time.
func TestGrantsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(*pair) {})
		time.Sleep(time.Millisecond)
		for i := range hotkeys.MaxGrants + 5 {
			task := []rpc.Task{{Op: op(p.key(i))}}
			for range 1100 {
				p.owner.Observe(task)
			}
		}
		time.Sleep(time.Second)
		granted, _ := p.owner.Sizes()
		if _, leased := p.other.Sizes(); granted != hotkeys.MaxGrants || leased != granted {
			t.Errorf("%d granted, %d leased, want %d", granted, leased, hotkeys.MaxGrants)
		}
	})
}
