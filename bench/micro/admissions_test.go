package micro_test

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"time"
)

// admissions is a log of admitted requests.
type admissions struct {
	mu  sync.Mutex
	all []admission
}

// admission is the number of requests admitted between two moments.
type admission struct {
	asked, answered time.Time
	n               int64
}

func (l *admissions) add(asked, answered time.Time, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, admission{asked, answered, n})
}

// most returns the largest number that was certainly admitted within any window of this length: the
// requests answered before its end, except the ones sent before its beginning. The log must not
// change meanwhile.
func (l *admissions) most(window time.Duration) (most int64) {
	byAsked, byAnswered := slices.Clone(l.all), slices.Clone(l.all)
	slices.SortFunc(byAsked, func(a, b admission) int { return a.asked.Compare(b.asked) })
	slices.SortFunc(byAnswered, func(a, b admission) int { return a.answered.Compare(b.answered) })
	var before, until int64
	next := 0
	for _, a := range byAsked {
		for ; next < len(byAnswered) &&
			byAnswered[next].answered.Before(a.asked.Add(window)); next++ {
			until += byAnswered[next].n
		}
		most = max(most, until-before)
		before += a.n
	}
	return most
}

// TestMostAdmitted compares with known results.
func TestMostAdmitted(t *testing.T) {
	const window = time.Minute
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for name, of := range map[string]struct {
		log  [][3]int // asked, answered, how many
		want int64
	}{
		"none":               {nil, 0},
		"all within":         {[][3]int{{0, 1, 5}, {3, 50, 6}, {40, 59, 7}}, 18},
		"one too late":       {[][3]int{{0, 1, 5}, {3, 50, 6}, {40, 60, 7}}, 13},
		"one may be too old": {[][3]int{{0, 30, 5}, {20, 70, 6}, {61, 65, 7}}, 13},
		"apart":              {[][3]int{{0, 1, 5}, {100, 101, 9}, {200, 201, 7}}, 9},
	} {
		var l admissions
		for _, a := range of.log {
			l.add(at(a[0]), at(a[1]), int64(a[2]))
		}
		slices.SortFunc(l.all, func(a, b admission) int { return cmp.Compare(b.n, a.n) })
		if got := l.most(window); got != of.want {
			t.Errorf("%s: %d, want %d", name, got, of.want)
		}
	}
}
