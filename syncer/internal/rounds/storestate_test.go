package rounds

import (
	"testing"
	"time"

	"twotier.dev/twotier/syncer/store"
)

// TestNewsBeginAGeneration: the store answers after this counter made one change.
func TestNewsBeginAGeneration(t *testing.T) {
	told := store.Told{Epoch: 7, Version: 10, Quieted: 4}
	after := store.Told{Epoch: 7, Version: 11, Quieted: 4}
	for _, tc := range []struct {
		name       string
		known      bool
		answer     store.Told
		hearsQuiet bool
		news       bool
	}{
		{"only this counter changed anything", true, after, false, false},
		{"another changed it", true, store.Told{Epoch: 7, Version: 12, Quieted: 4}, false, true},
		{"another changed it quietly", true, store.Told{Epoch: 7, Version: 11, Quieted: 5}, false, true},
		{"another changed shared keys quietly", true, store.Told{Epoch: 7, Version: 11, Quieted: 5}, true, false},
		{"the change was not carried out", true, told, false, true},
		{"the first answer", false, store.Told{Epoch: 7, Version: 12, Quieted: 5}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := StoreState{Reported: told, Report: Asked, Generation: lastGeneration}
			if tc.known {
				s.Report = Requested
			}
			s.ApplyAnswer(tc.answer, after, tc.hearsQuiet, time.Now())
			want := uint32(lastGeneration)
			if tc.news {
				want = 0 // the generation has 24 bits
			}
			if s.Generation != want || s.Reported != tc.answer || s.Report != Fresh {
				t.Errorf("%+v, want generation %d", s, want)
			}
		})
	}
}

// TestWhatWasLoadedCountsForALoss loads next to other rounds. The store's report is no news, but if
// it later has less, that is a loss.
func TestWhatWasLoadedCountsForALoss(t *testing.T) {
	s := StoreState{Report: Fresh, Reported: store.Told{Epoch: 7, Version: 10, Quieted: 4, LastChange: "first"}}
	s.ApplyLoadAnswer(store.Told{Epoch: 7, Version: 12, Quieted: 5, LastChange: "last"})
	s.ApplyLoadAnswer(store.Told{Epoch: 7, Version: 11, Quieted: 5, LastChange: "earlier"}) // answered out of order
	if want := (store.Told{Epoch: 7, Version: 12, Quieted: 5, LastChange: "last"}); s.Latest() != want || !s.MayHaveChanged() {
		t.Errorf("the latest is %+v, want %+v", s.Latest(), want)
	}
	if want := (store.Told{Epoch: 7, Version: 10, Quieted: 4, LastChange: "first"}); s.Reported != want || s.Generation != 0 {
		t.Errorf("told is %+v in generation %d, want %+v", s.Reported, s.Generation, want)
	}
	s.SetReported(store.Told{Epoch: 8, Version: 1, Quieted: 0})
	if s.Latest() != s.Reported {
		t.Errorf("the latest is %+v of an epoch that has ended", s.Latest())
	}
}

// TestALateAnswerIsNotTheLatest: another counter handed the partition over while a round was in
// flight, and knew of more changes than the answer to that round counts.
func TestALateAnswerIsNotTheLatest(t *testing.T) {
	told := store.Told{Epoch: 7, Version: 12, Quieted: 4, LastChange: "last"}
	s := StoreState{Report: Fresh, Reported: told}
	s.ApplyAnswer(store.Told{Epoch: 7, Version: 10, Quieted: 4, LastChange: "earlier"}, store.Told{Epoch: 7, Version: 13, Quieted: 4, LastChange: "last"}, false,
		time.Now())
	if s.Reported != told || s.Generation != 1 {
		t.Errorf("told is %+v in generation %d, want %+v and what is known read again", s.Reported,
			s.Generation, told)
	}
}
