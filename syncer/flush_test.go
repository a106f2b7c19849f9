package syncer_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// waitingStore is a store that delays the next round on request.
type waitingStore struct {
	syncer.Store
	next chan chan struct{} // the channel that a round waits on, sent when it arrives
}

func (s *waitingStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	select {
	case pause := <-s.next:
		pause <- struct{}{}
		<-pause
	default:
	}
	s.Store.Exchange(ctx, rounds)
}

// halfFolded is a seed with which TestFlushesChangeNoAnswer found a bug: an event that was taken
// back had folded once when the round was answered, but was old enough to have folded twice.
const halfFolded = 430608822308

// TestFlushesChangeNoAnswer counts and takes back the same events in two counters. One is flushed
// after each operation. The other is flushed now and then, sometimes with operations while the
// round is under way. Wherever the counts are, and whenever they fold, both counters have the same
// events.
func TestFlushesChangeNoAnswer(t *testing.T) { eachSeed(t, 100, flushesChangeNoAnswer, halfFolded) }

func flushesChangeNoAnswer(t *testing.T, seed uint64) {
	l, err := leaparray.NewLadder(0, leaparray.Level{Width: 100 * time.Millisecond, Count: 8},
		leaparray.Level{Width: time.Second, Count: 6},
		leaparray.Level{Width: 6 * time.Second, Count: 8})
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{dice: rand.New(rand.NewPCG(seed, 11)), clk: &clock{now: t0},
		left: map[int64]int64{}}
	opt := syncer.Options{Now: p.clk.Now, FlushInterval: time.Hour, VerifyInterval: time.Hour,
		Placement:  twotier.Placement{Partitions: 1},
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {Ladder: l}}}
	p.eager = open(t, opt)
	p.store = &waitingStore{embedded.New(embedded.Options{}), make(chan chan struct{}, 1)}
	opt.Store = p.store
	p.lazy = open(t, opt)
	p.compare(t) // from now on both have the key in memory, and need not read it during a flush
	for range 200 {
		p.count(t)
		switch p.dice.IntN(20) {
		case 0:
			flush(t, p.lazy)
		case 1:
			p.countDuringFlush(t)
		}
		p.compare(t)
	}
}

// pair is two counters of the same events.
type pair struct {
	dice        *rand.Rand
	clk         *clock
	store       *waitingStore // of lazy
	eager, lazy *syncer.Counter
	last        twotier.Op
	paused      bool            // a flush of lazy is under way
	left        map[int64]int64 // events counted and not taken back, by time
}

// count counts something in both, or takes it back if it is there.
func (p *pair) count(t *testing.T) {
	p.clk.set(p.clk.Now() + p.dice.Int64N(300)*p.dice.Int64N(2))
	if p.dice.IntN(40) == 0 {
		p.clk.set(p.clk.Now() + p.dice.Int64N(100_000))
	}
	n, ts := 1+p.dice.Int64N(3), p.clk.Now()
	if p.dice.IntN(6) == 0 {
		ts -= p.dice.Int64N(5000)
	}
	switch kind := p.dice.IntN(6); {
	case p.paused: // taking back may require a read first
	case kind < 2:
		if len(p.left) == 0 {
			return
		}
		counted := slices.Sorted(maps.Keys(p.left))
		ts = counted[p.dice.IntN(len(counted))]
		n = -p.left[ts]
	case kind == 2:
		p.add(t, ts, n)
		n = -n // all of it
	}
	p.add(t, ts, n)
}

func (p *pair) add(t *testing.T, ts, n int64) {
	if n == 0 || ts <= p.clk.Now()-40_000 {
		return
	}
	if p.left[ts] += n; p.left[ts] == 0 {
		delete(p.left, ts)
	}
	p.last = twotier.Op{Kind: twotier.Add, TS: ts,
		Checks: []twotier.Check{{Key: []byte("k"), N: n}}}
	do(t, p.eager, p.last)
	flush(t, p.eager)
	do(t, p.lazy, p.last)
}

func (p *pair) countDuringFlush(t *testing.T) {
	for _, c := range []*syncer.Counter{p.eager, p.lazy} {
		add(t, c, "other", 1, 0) // so that there is something to flush
	}
	pause, done := make(chan struct{}), make(chan error)
	p.store.next <- pause
	go func() { done <- p.lazy.Flush(t.Context()) }()
	<-pause
	p.paused = true
	for range p.dice.IntN(4) {
		p.count(t)
	}
	p.paused = false
	close(pause)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// compare compares the answers of both for windows that end now or earlier.
func (p *pair) compare(t *testing.T) {
	ask := twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{{Key: []byte("k"),
		Limits: limits(1+p.dice.Int64N(800), 0, 1+p.dice.Int64N(5000), 0,
			1+p.dice.Int64N(40_000), 0)}}}
	if p.dice.IntN(2) == 0 {
		ask.TS = p.clk.Now() - p.dice.Int64N(20_000)
	}
	eager, lazy := p.answer(t, p.eager, ask), p.answer(t, p.lazy, ask)
	if e, l := p.nested(t, p.eager), p.nested(t, p.lazy); !maps.Equal(e, l) {
		t.Fatalf("after %+v:\nflushed:     %+v\nnot flushed: %+v", p.last, e, l)
	}
	for i := range eager {
		e, l := &eager[i], &lazy[i]
		if e.Lo > l.Hi || l.Lo > e.Hi {
			t.Fatalf("after %+v, up to %d:\nflushed:     %+v\nnot flushed: %+v", p.last, ask.TS, e,
				l)
		}
	}
}

func (p *pair) answer(t *testing.T, c *syncer.Counter, ask twotier.Op) []twotier.LimitResult {
	var res twotier.Result
	if err := c.Do(t.Context(), &ask, &res); err != nil {
		return nil // it is out of reach
	}
	return res.Checks[0].Limits
}

// nested returns a counter's sum of each bucket of the coarsest level that a window can see.
func (p *pair) nested(t *testing.T, c *syncer.Counter) map[int64]int64 {
	v, now, err := c.Snapshot(t.Context(), nil, []byte("k"), false)
	if err != nil {
		t.Fatal(err)
	}
	sums, width := map[int64]int64{}, v.Ladder.CoarsestWidth()
	add := func(at leaparray.Stretch, n int64) bool {
		if start := at.Start - at.Start%width; at.End() > v.Ladder.CompleteFrom(now) {
			if sums[start] += n; sums[start] == 0 {
				delete(sums, start)
			}
		}
		return true
	}
	v.Ladder.EachCell(v.A, add)
	v.Ladder.EachCell(v.B, add)
	return sums
}

// contentStore records the rounds that carry the content of a key. It does not answer the first of
// them, and does not apply it.
type contentStore struct {
	syncer.Store
	mu    sync.Mutex
	first uint64   // the sequence of the first one
	again []bool   // whether the same round had content when it was sent again
	later []uint64 // the sequences of others with content
}

func (s *contentStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		if s.isUnanswered(r) {
			r.Err = twotier.ErrUnknownOutcome
			continue
		}
		s.Store.Exchange(ctx, []*syncer.Round{r})
	}
}

func (s *contentStore) isUnanswered(r *syncer.Round) bool {
	has := false
	for i := range r.Keys {
		has = has || r.Keys[i].Content != nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.first != 0 && r.Seq == s.first:
		s.again = append(s.again, has)
	case has && s.first == 0:
		s.first = r.Seq
		return true
	case has:
		s.later = append(s.later, r.Seq)
	}
	return false
}

// TestContentIsSentOnce counts so many events that the key folds. A round carries what the key then
// has, but not when it is sent again: others may have changed the key since. Every event is counted
// once.
func TestContentIsSentOnce(t *testing.T) {
	s := &contentStore{Store: embedded.New(embedded.Options{})}
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Store: s, Now: clk.Now, VerifyInterval: time.Hour,
		Placement: twotier.Placement{Partitions: 1}})
	const events = 1000
	for i := range events {
		clk.set(t0 + 61*int64(i))
		add(t, c, "k", 1, 0)
		if i%10 == 0 {
			flush(t, c)
		}
	}
	flush(t, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.again) == 0 || s.again[0] || len(s.later) == 0 {
		t.Errorf("round %d had content, and when it was sent again: %v; later rounds: %v", s.first,
			s.again, s.later)
	}
	r := &syncer.Round{Writer: "reader", Keys: []syncer.KeyRound{{Key: []byte("k"), Load: true}}}
	s.Store.Exchange(t.Context(), []*syncer.Round{r})
	sum := int64(0)
	for _, b := range r.Keys[0].Loaded {
		sum += b.N
	}
	if sum != events {
		t.Errorf("%d events are stored, want %d", sum, events)
	}
}
