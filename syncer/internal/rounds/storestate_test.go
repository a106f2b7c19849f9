package rounds

import (
	"testing"
	"time"

	"twotier.dev/twotier/syncer/store"
)

func told(epoch, version, quieted uint64, last string) store.Told {
	return store.Told{Epoch: epoch, Version: version, Quieted: quieted, LastChange: last}
}

// TestNewsBeginAGeneration: the store answers after this counter made one change.
func TestNewsBeginAGeneration(t *testing.T) {
	known := told(7, 10, 4, "")
	after := told(7, 11, 4, "")
	for _, tc := range []struct {
		name       string
		known      bool
		answer     store.Told
		hearsQuiet bool
		news       bool
	}{
		{"only this counter changed anything", true, after, false, false},
		{"another changed it", true, told(7, 12, 4, ""), false, true},
		{"another changed it quietly", true, told(7, 11, 5, ""), false, true},
		{"another changed shared keys quietly", true, told(7, 11, 5, ""), true, false},
		{"the change was not carried out", true, known, false, true},
		{"the first answer", false, told(7, 12, 5, ""), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := StoreState{Reported: known, Report: Asked, Generation: lastGeneration}
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
	s := StoreState{Report: Fresh, Reported: told(7, 10, 4, "first")}
	s.ApplyLoadAnswer(told(7, 12, 5, "last"))
	s.ApplyLoadAnswer(told(7, 11, 5, "earlier")) // answered out of order
	if want := (told(7, 12, 5, "last")); s.Latest() != want || !s.MayHaveChanged() {
		t.Errorf("the latest is %+v, want %+v", s.Latest(), want)
	}
	if want := (told(7, 10, 4, "first")); s.Reported != want || s.Generation != 0 {
		t.Errorf("told is %+v in generation %d, want %+v", s.Reported, s.Generation, want)
	}
	s.SetReported(told(8, 1, 0, ""))
	if s.Latest() != s.Reported {
		t.Errorf("the latest is %+v of an epoch that has ended", s.Latest())
	}
}

// TestALateAnswerIsNotTheLatest: another counter handed the partition over while a round was in
// flight, and knew of more changes than the answer to that round counts.
func TestALateAnswerIsNotTheLatest(t *testing.T) {
	known := told(7, 12, 4, "last")
	s := StoreState{Report: Fresh, Reported: known}
	s.ApplyAnswer(told(7, 10, 4, "earlier"), told(7, 13, 4, "last"), false, time.Now())
	if s.Reported != known || s.Generation != 1 {
		t.Errorf("told is %+v in generation %d, want %+v and what is known read again", s.Reported,
			s.Generation, known)
	}
}
