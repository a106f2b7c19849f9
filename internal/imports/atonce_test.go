package imports_test

import (
	"cmp"
	"context"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/internal/imports"
	"twotier.dev/twotier/internal/testing/seed"
)

// sharedServer counts the events of one key. Between two operations another import may run.
type sharedServer struct {
	*rand.Rand
	log     []imports.Event
	running int
	other   func()
}

func (s *sharedServer) Span(context.Context, string) (int64, error) { return 86_400_000, nil }

func (s *sharedServer) Marked(context.Context, int64, []imports.Probe) ([]int64, error) {
	return []int64{sum(s.log)}, nil
}

func (s *sharedServer) Series(context.Context, imports.Mark, int64) (list []imports.Bucket,
	err error) {
	for _, e := range imports.Merge(append([]imports.Event(nil), s.log...)) {
		list = append(list, imports.Bucket{Start: e.TS, Width: 1, N: e.N})
	}
	return list, nil
}

func (s *sharedServer) Count(_ context.Context, _ int64, ops iter.Seq[imports.Op],
	counted func(*imports.Op)) (all bool, why, err error) {
	all = true
	for op := range ops {
		if s.running < 4 && s.IntN(4) == 0 {
			s.other()
		}
		if sum(s.log)+op.N > op.Max {
			all = false
			continue
		}
		s.log = append(s.log, imports.Event{TS: op.TS, N: op.N})
		counted(&op)
	}
	return all, nil, nil
}

// TestImportsAtOnceReportTheirShare runs up to four imports of one key at once: together they
// report each event as counted once, and each reports all events.
func TestImportsAtOnceReportTheirShare(t *testing.T) {
	first := seed.First()
	for n := first; n < first+*seeds; n++ {
		s := &sharedServer{Rand: rand.New(rand.NewPCG(n, 0))}
		now := time.Now().UnixMilli() - 60_000
		var events []imports.Event
		for i := range int64(1 + s.IntN(30)) {
			events = append(events, imports.Event{TS: now + i*10, N: 1 + s.Int64N(5)})
		}
		isTotal, counted := s.IntN(2) == 0, int64(0)
		run := func() {
			s.running++
			defer func() { s.running-- }()
			r, err := imports.ImportEvents(t.Context(), s, events, isTotal)
			if err != nil {
				t.Fatalf("TWOTIER_TEST_FIRST=%d: %v", n, err)
			}
			counted += r.Counted
			first := cmp.Or(r.First, new(imports.Sample))
			if r.Counted+r.Repeated+r.Meanwhile != sum(events) || first.Events != r.Counted {
				t.Errorf("TWOTIER_TEST_FIRST=%d: %+v, want %d", n, r, sum(events))
			}
		}
		s.other = run
		run()
		run()
		if counted != sum(events) || sum(s.log) != counted {
			t.Errorf("TWOTIER_TEST_FIRST=%d: %d reported, %d counted, want %d", n, counted,
				sum(s.log), sum(events))
		}
	}
}
