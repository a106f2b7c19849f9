package ask_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/holds"
)

// thawing refuses like cold until it is warm.
type thawing struct {
	cold
	warm  atomic.Bool
	calls atomic.Int64
}

func (s *thawing) DoAll(ctx context.Context, ops []twotier.Op, results []twotier.Result) {
	s.calls.Add(1)
	if s.cold.DoAll(ctx, ops, results); s.warm.Load() {
		for i := range results {
			results[i].Allowed = true
		}
	}
}

// one is a store with the deadline of one hold.
type one struct {
	id      string
	slot    int64
	removed atomic.Bool
}

func (s *one) ChangeDeadlines(_ context.Context, _, remove map[int64][]string) error {
	s.removed.Store(s.removed.Load() || len(remove) > 0)
	return nil
}

func (s *one) Deadlines(_ context.Context, slots []int64,
	visit func(slot int64, ids []string)) error {
	for _, slot := range slots {
		if slot == s.slot && !s.removed.Load() {
			visit(slot, []string{s.id})
		} else {
			visit(slot, nil)
		}
	}
	return nil
}

// TestRefusedReleaseIsRepeated: a release that the namespace of a key refuses is not done, and is
// repeated until it is.
func TestRefusedReleaseIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := func() int64 { return time.Now().UnixMilli() }
		h, service := &ask.Holds{Now: now}, &thawing{}
		h.Sealer.SetSecret([]byte("secret"))
		until := now() - now()%holds.DeadlineSlot.Milliseconds()
		store := &one{slot: until, id: h.Sealer.Seal(&holds.Hold{Until: until, Release: true,
			Checks: []holds.Check{{Key: []byte("k"), N: 1, TS: until - 1000}}})}
		h.Open(service, store, 0, slog.New(slog.DiscardHandler))
		defer h.Close()
		time.Sleep(time.Minute)
		if calls := service.calls.Load(); calls < 5 || store.removed.Load() {
			t.Errorf("%d attempts, removed: %v", calls, store.removed.Load())
		}
		service.warm.Store(true)
		time.Sleep(10 * time.Second)
		if !store.removed.Load() {
			t.Error("it is not released")
		}
	})
}
