package syncer

import (
	"testing"
	"time"
)

// TestNewsBeginAGeneration: the store answers after this counter made one change.
func TestNewsBeginAGeneration(t *testing.T) {
	told := storeVersion{epoch: 7, version: 10, quieted: 4}
	after := storeVersion{epoch: 7, version: 11, quieted: 4}
	for _, tc := range []struct {
		name       string
		known      bool
		answer     storeVersion
		hearsQuiet bool
		news       bool
	}{
		{"only this counter changed anything", true, after, false, false},
		{"another changed it", true, storeVersion{7, 12, 4, ""}, false, true},
		{"another changed it quietly", true, storeVersion{7, 11, 5, ""}, false, true},
		{"another changed it quietly, who shares keys", true, storeVersion{7, 11, 5, ""}, true, false},
		{"the change was not carried out", true, told, false, true},
		{"the first answer", false, storeVersion{7, 12, 5, ""}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := storeState{known: tc.known, told: told, mustVerify: true,
				generation: lastGeneration}
			s.learn(tc.answer, after, tc.hearsQuiet, time.Now())
			want := uint32(lastGeneration)
			if tc.news {
				want = 0 // the generation has 24 bits
			}
			if s.generation != want || s.told != tc.answer || !s.known || s.mustVerify {
				t.Errorf("%+v, want generation %d", s, want)
			}
		})
	}
}

// TestWhatWasLoadedCountsForALoss loads next to other rounds. The store's report is no news, but if
// it later has less, that is a loss.
func TestWhatWasLoadedCountsForALoss(t *testing.T) {
	s := storeState{known: true, told: storeVersion{7, 10, 4, "first"}}
	s.learnLoaded(storeVersion{7, 12, 5, "last"})
	s.learnLoaded(storeVersion{7, 11, 5, "earlier"}) // answered out of order
	if want := (storeVersion{7, 12, 5, "last"}); s.latest() != want || !s.mayHaveChanged() {
		t.Errorf("the latest is %+v, want %+v", s.latest(), want)
	}
	if want := (storeVersion{7, 10, 4, "first"}); s.told != want || s.generation != 0 {
		t.Errorf("told is %+v in generation %d, want %+v", s.told, s.generation, want)
	}
	s.setTold(storeVersion{8, 1, 0, ""})
	if s.latest() != s.told {
		t.Errorf("the latest is %+v of an epoch that has ended", s.latest())
	}
}

// TestALateAnswerIsNotTheLatest: another counter handed the partition over while a round was in
// flight, and knew of more changes than the answer to that round counts.
func TestALateAnswerIsNotTheLatest(t *testing.T) {
	told := storeVersion{7, 12, 4, "last"}
	s := storeState{known: true, told: told}
	s.learn(storeVersion{7, 10, 4, "earlier"}, storeVersion{7, 13, 4, "last"}, false, time.Now())
	if s.told != told || s.generation != 1 {
		t.Errorf("told is %+v in generation %d, want %+v and what is known read again", s.told,
			s.generation, told)
	}
}
