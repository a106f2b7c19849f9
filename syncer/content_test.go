package syncer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

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
