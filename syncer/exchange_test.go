package syncer

import (
	"context"
	"testing"
	"time"
	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// noStore is a store that is never called.
type noStore struct{}

func (noStore) Exchange(context.Context, []*Round) { panic("asked") }

// lonely returns the only partition of a counter that is not running.
func lonely(t testing.TB) *partition {
	c, err := New(Options{Store: noStore{}, Placement: twotier.Placement{Partitions: 1},
		Writer: "w"})
	if err != nil {
		t.Fatal(err)
	}
	p := &c.parts[0]
	p.hear(7, 1)
	return p
}

// TestWhoDealsWithTheStore checks the rounds that a partition sends in each state.
func TestWhoDealsWithTheStore(t *testing.T) {
	for _, tc := range []struct {
		name                      string
		prepare                   func(p *partition)
		flushes, loads, republish bool
	}{
		{name: "something is dirty, and a key is waited for", prepare: func(*partition) {},
			flushes: true, loads: true},
		{name: "a round is with the store", prepare: func(p *partition) { p.outbox.Sent = true },
			loads: true},
		{name: "a round has failed just now", loads: true,
			prepare: func(p *partition) { p.outbox.Retry.Fail(time.Now()) }},
		{name: "it is about to be handed off", prepare: func(p *partition) {
			p.store.RequestReport()
			p.handoff.prepare()
			p.loads.want("asked for since")
		}},
		{name: "the store has lost data", flushes: true, republish: true,
			prepare: func(p *partition) {
				p.restoration.beginAfterLoss(rounds.StoreVersion{Epoch: 7})
			}},
		{name: "others may have sent what is queued", flushes: true,
			prepare: func(p *partition) { p.outbox.MaybeSent = true }},
		{name: "a load has found a loss", flushes: true,
			prepare: func(p *partition) { p.store.SuspectLoss() }},
		{name: "a load has failed just now", flushes: true,
			prepare: func(p *partition) { p.loads.Retry.Fail(time.Now()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := lonely(t)
			p.add("k", 1)
			p.loads.want("waited for")
			tc.prepare(p)
			load, _ := p.cutLoad()
			r, _ := p.cut()
			if (r != nil) != tc.flushes || (load != nil) != tc.loads {
				t.Fatalf("flushes %v, loads %v", r != nil, load != nil)
			}
			if r != nil && r.Republish != tc.republish {
				t.Errorf("restores: %v", r.Republish)
			}
			if r != nil && r.Epoch != 7 {
				t.Errorf("the round is addressed to epoch %d", r.Epoch)
			}
		})
	}
}

// TestALateAnswerIsNoLoss has a round that was sent before a restoration began report a loss. The
// data that came with the restoration is in the store already.
func TestALateAnswerIsNoLoss(t *testing.T) {
	p := lonely(t)
	p.add("k", 1)
	r, _ := p.cut()
	p.restoration.restoreAll(rounds.StoreVersion{Epoch: 8})
	job := p.restoration.job
	r.Lost, r.Epoch = true, 8
	if more := p.settle(r); !more || p.restoration.job != job {
		t.Errorf("more to send: %v, the restoration begins anew: %v", more,
			p.restoration.job != job)
	}
}

// TestWhatIsGoneThroughStays evicts a key that the store has, unless the entries are being walked.
func TestWhatIsGoneThroughStays(t *testing.T) {
	for _, tc := range []struct {
		name  string
		begin func(p *partition)
		keeps bool
	}{
		{"nobody does", func(*partition) {}, false},
		{"a restoration",
			func(p *partition) { p.restoration.restoreAll(rounds.StoreVersion{}) }, true},
		{"a handoff", func(p *partition) { p.handoff.prepare() }, true},
		{"a round that fails", func(p *partition) {
			p.outbox.Flight = p.newRound()
			p.outbox.Retry.Fail(time.Now())
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := lonely(t)
			p.at("k").SetLastUsed(0)
			tc.begin(p)
			if evicted := p.evictOne(keys.EvictableAge+1, keys.AnySpace); evicted == tc.keeps {
				t.Errorf("evicted: %v", evicted)
			}
		})
	}
}
